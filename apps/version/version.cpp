#include "apps/version/version.h"

#include <cmark-gfm.h>
#include <fmt/format.h>
#include <simdjson.h>
#include <toml++/toml.h>
#include <torch/version.h>
#include <xxhash.h>
#include <zlib.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "longhaul/base/build_info.h"
#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/process/unwind.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/device/cuda_library.h"

namespace longhaul::apps {
namespace {

std::string xxhash_version() {
  const unsigned number = XXH_versionNumber();  // major * 10000 + minor * 100 + release
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string fmt_version() {
  return fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100);
}

std::string hdf5_version() {
  const std::string linked = data::hdf5_version();
  return linked.empty() ? "not built in" : linked;
}

/// Returns the name of the CUDA library. The library is not loaded: that takes seconds,
/// and only a verb that computes needs it.
std::string cuda_text() {
  const fs::path path = device::library_path("liblonghaul_cuda.so");
  return path.empty() ? "no library for it beside the program" : path.filename().string();
}

}  // namespace

std::vector<LibraryVersion> library_versions() {
  return {
      {"LibTorch", TORCH_VERSION},
      {"CUDA", cuda_text()},
      {"MPI", mpi_version()},
      {"Arrow", arrow_version()},
      {"HDF5", hdf5_version()},
      {"fmt", fmt_version()},
      {"toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
      {"CLI11", CLI11_VERSION},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                   NLOHMANN_JSON_VERSION_PATCH)},
      {"simdjson",
       fmt::format("{}.{}.{}", static_cast<int>(simdjson::SIMDJSON_VERSION_MAJOR),
                   static_cast<int>(simdjson::SIMDJSON_VERSION_MINOR),
                   static_cast<int>(simdjson::SIMDJSON_VERSION_REVISION))},
      {"xxHash", xxhash_version()},
      {"zlib", zlibVersion()},
      {"libsodium", cluster::sodium_version()},
      {"libdw", cluster::Unwinder::version()},
      {"cmark-gfm", cmark_version_string()},
  };
}

std::string version_text() {
  const BuildInfo& build = build_info();
  std::string text =
      fmt::format("longhaul {}\n  {:<14} {}\n  {:<14} {} ({})\n", build.version, "commit",
                  build.commit, "compiler", build.compiler, build.build_type);
  for (const LibraryVersion& library : library_versions()) {
    text += fmt::format("  {:<14} {}\n", library.name, library.version);
  }
  return text;
}

}  // namespace longhaul::apps
