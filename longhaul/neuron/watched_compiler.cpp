#include "longhaul/neuron/watched_compiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "longhaul/base/error.h"
#include "longhaul/neuron/python.h"
#include "longhaul/system/terminal.h"

namespace longhaul::neuron {
namespace {

constexpr const char* kCompilerArea = "neuron";
/// A key is named by so many characters of its module.
constexpr size_t kMostOfName = 240;

/// Returns what a module's beginning says of the operation and its shapes: the module's
/// name, and then what stands in its braces, without that name.
std::string name_of_module(const std::string& module) {
  const std::string operation = module.substr(0, module.find_first_of(" {"));
  std::string rest = module.substr(operation.size());
  for (const std::string& skipped :
       {std::string(" "), std::string("{"), std::string(" // "), operation}) {
    if (rest.starts_with(skipped)) rest.erase(0, skipped.size());
  }
  while (rest.ends_with(' ') || rest.ends_with('}')) rest.pop_back();
  if (rest.empty()) return operation;
  return (operation + " " + rest).substr(0, kMostOfName);
}

}  // namespace

void check_cache(const fs::path& cache, bool only) {
  std::error_code error;
  if (only) {
    if (fs::is_directory(cache, error)) return;
    fail_config(kCompilerArea,
                "run.compile_cache = \"only\", and there is no cache {} "
                "(TORCH_NEURONX_NEFF_CACHE_DIR); fill it with longhaul compile",
                cache.string());
  }
  fs::create_directories(cache, error);
  const fs::path probe = cache / fmt::format(".longhaul.{}", ::getpid());
  if (!error && std::ofstream(probe).put('\n').flush()) {
    fs::remove(probe, error);
    return;
  }
  if (!error) error = std::error_code(errno, std::generic_category());
  fail_config(kCompilerArea,
              "nothing can be written to the cache of compiled kernels {} "
              "(TORCH_NEURONX_NEFF_CACHE_DIR): {}; name another folder in "
              "run.compile_cache_dir, or set run.compile_cache = \"only\" for a cache "
              "that has every kernel",
              cache.string(), error.message());
}

WatchedCompiler::WatchedCompiler(const std::string& compiler, const fs::path& cache,
                                 bool only) {
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "longhaul_neuron_XXXXXX");
  const bool made = !error && ::mkdtemp(folder.data()) != nullptr;
  folder_ = folder;
  record_ = folder_ / "record";
  const fs::path program = folder_ / "neuronx-cc";
  if (made) {
    std::ofstream(program) << "#!/bin/sh\ncompiler=" << system::shell_word(compiler)
                           << " cache=" << system::shell_word(cache)
                           << " record=" << system::shell_word(record_)
                           << " only=" << (only ? 1 : 0) << "\n"
                           << kCompilerSource;
    fs::permissions(program, fs::perms::owner_all, error);
  }
  if (::access(program.c_str(), X_OK) == 0) return;
  fail_config(kCompilerArea,
              "a program cannot be run from {}, the folder of temporary files; name "
              "another in TMPDIR",
              program.string());
}

WatchedCompiler::~WatchedCompiler() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<device::CompiledKey> WatchedCompiler::compiled() {
  std::vector<device::CompiledKey> keys;
  std::ifstream file(record_, std::ios::binary);
  if (!file.seekg(static_cast<std::streamoff>(read_))) return keys;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    read_ += line.size() + 1;
    keys.push_back(key_of_line(line));
  }
  return keys;
}

device::CompiledKey key_of_line(std::string_view line) {
  std::istringstream words{std::string(line)};
  double began = 0.0, ended = 0.0;
  device::CompiledKey key;
  words >> began >> ended >> key.bytes;
  std::string module;
  std::getline(words >> std::ws, module);
  key.name = name_of_module(module);
  key.seconds = ended - began;
  return key;
}

}  // namespace longhaul::neuron
