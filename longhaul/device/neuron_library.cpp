#include "longhaul/device/neuron_library.h"

#include <c10/core/DeviceType.h>
#include <dlfcn.h>

#include <cstdlib>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/comm/options.h"
#include "longhaul/device/cuda_library.h"
#include "longhaul/device/plugin.h"

namespace longhaul::device {
namespace {

constexpr const char* kLibrary = "liblonghaul_neuron.so";
constexpr const char* kLoad = "longhaul_neuron_load";
using Load = void(const NeuronStart&, NeuronLoaded&);

constexpr const char* kLoopback = "127.0.0.1";

/// Returns the name by which other machines reach this one, where it is rank 0's.
std::string own_address() {
  const char* const given = std::getenv("MASTER_ADDR");
  return given != nullptr && *given != '\0' ? given : host_name();
}

std::optional<NeuronLoaded>& loaded_backend() {
  static std::optional<NeuronLoaded> backend;
  return backend;
}

}  // namespace

const NeuronLoaded& load_neuron(const NeuronStart& start) {
  if (loaded_backend()) return *loaded_backend();
  const fs::path path = library_path(kLibrary);
  if (path.empty()) {
    fail_config("neuron",
                "run.device = \"neuron\" needs {} beside the program, and it is absent; "
                "install the whole program (make install)",
                kLibrary);
  }
  // The library states the limits of the device to this program (tensor::limits_of).
  void* const handle = ::dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    fail_config("neuron", "{} cannot be loaded: {}", path.string(), ::dlerror());
  }
  void* const load = ::dlsym(handle, kLoad);
  LH_ASSERT(load != nullptr, "{} lacks the function {}", path.string(), kLoad);
  NeuronLoaded loaded;
  reinterpret_cast<Load*>(load)(start, loaded);
  adopt_plugin(handle, path);
  loaded_backend() = std::move(loaded);
  return *loaded_backend();
}

bool means_neuron(const RunSection& run, const fs::path& driver) {
  const bool found =
      run.device == "auto" && run.device_plugin.empty() && fs::exists(driver);
  return run.device == "neuron" || found;
}

const NeuronLoaded* load_neuron_for(const RunSection& run, comm::Communicator& world,
                                    comm::Communicator& node, const fs::path& driver) {
  if (!means_neuron(run, driver)) return nullptr;
  if (!run.compile_cache_from.empty()) {
    std::error_code told_later;  // train::fill_kernel_cache() tells it
    fs::create_directories(run.compile_cache_dir, told_later);
  }
  const char* const visible = std::getenv("NEURON_RT_VISIBLE_CORES");
  const NeuronStart start{
      .python = run.neuron_python,
      .local_rank = node.rank(),
      .cores = node.gather_strings(visible == nullptr ? "" : visible),
      .cache = run.compile_cache_dir.string(),
      .only_cached = run.compile_cache == "only",
      .rank = world.rank(),
      .ranks = world.size(),
      .deadline_seconds = world.limits().deadline_seconds,
      .address = node.size() == world.size() ? kLoopback : own_address(),
      .of_first = [&](const std::string& text) {
        return world.broadcast_string(text, 0);
      }};
  try {
    return &load_neuron(start);
  } catch (const ConfigError& error) {
    if (run.device == "neuron") throw;
    fail_config("neuron",
                "{}; run.device = \"auto\" means Trainium here, since {} exists: set "
                "run.device = \"cpu\" to train without it",
                error.message(), driver.string());
  }
}

const NeuronLoaded* loaded_neuron() {
  return loaded_backend() ? &*loaded_backend() : nullptr;
}

}  // namespace longhaul::device
