#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "standin.h"

// The way from a key to a file of the cache, by the forked compiler.

namespace neuron_standin {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string target() {
  return instance().starts_with("trn1") ? "trn1"
                                        : setting("NEURON_STANDIN_TARGET", "trn2");
}

/// Returns 128 bits as 32 digits. The real one takes XXH3-128 of the key and the IR.
std::string digest(const std::string& text) {
  uint64_t halves[2] = {0xcbf29ce484222325U, 0x9ae16a3b2f90404fU};
  for (const char c : text) {
    for (uint64_t& half : halves) {
      half = (half ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
      half ^= half >> 29;
    }
    halves[1] += halves[0];
  }
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx",
                static_cast<unsigned long long>(halves[0]),
                static_cast<unsigned long long>(halves[1]));
  return digits;
}

/// A lock of one key between the processes of a node.
class Lock {
 public:
  explicit Lock(const fs::path& path) {
    fs::create_directories(path.parent_path());
    file_ = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    const auto until =
        std::chrono::steady_clock::now() +
        std::chrono::seconds(number("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", 600));
    while (file_ < 0 || ::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      TORCH_CHECK(file_ >= 0 && std::chrono::steady_clock::now() < until,
                  "neuron stand-in: no lock on ", path.string());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ~Lock() { ::close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_ = -1;
};

/// Runs the compiler in a process of its own. Returns what it said where it failed.
std::string run_compiler(const fs::path& folder, const fs::path& output) {
  const std::string module = (folder / "module.mlir").string();
  const std::string log = (folder / "log").string();
  std::vector<std::string> words = {"neuronx-cc",
                                    "compile",
                                    module,
                                    "--framework",
                                    "XLA",
                                    "--target",
                                    target(),
                                    "--lnc",
                                    setting("NEURON_LOGICAL_NC_CONFIG", "2"),
                                    "-O" + setting("NEURON_COMPILER_OPT_LEVEL", "1"),
                                    "--output",
                                    output.string()};
  std::istringstream flags(setting("NEURON_CC_FLAGS", ""));
  for (std::string word; flags >> word;) words.push_back(word);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  TORCH_CHECK(child >= 0, "neuron stand-in: fork failed");
  if (child == 0) {
    const int file = ::open(log.c_str(), O_CREAT | O_WRONLY, 0666);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::execvp(pointers[0], pointers.data());
    static constexpr char kText[] = "execvp neuronx-cc: no such program on PATH\n";
    (void)!::write(2, kText, sizeof(kText) - 1);
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  const std::string said = read_file(log);
  return said.empty() ? "status " + std::to_string(status) : said;
}

/// Returns the error of the compiler, or "" where the file is written.
std::string compile(const std::string& module, const fs::path& output) {
  if (number("NEURON_STANDIN_NO_FORK", 0) != 0 &&
      setting("NEURON_STANDIN_CC_FAIL", "").empty()) {
    std::ofstream(output) << "NEFF stand-in\n" << module;
    return "";
  }
  std::string folder = (fs::temp_directory_path() / "neuronx_XXXXXX").string();
  TORCH_CHECK(::mkdtemp(folder.data()) != nullptr, "neuron stand-in: no folder in ",
              fs::temp_directory_path().string());
  std::ofstream(fs::path(folder) / "module.mlir") << module;
  const std::string error = run_compiler(folder, output);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return error;
}

/// Brings the key's file into the cache. Returns the compiler's error, or "".
std::string bring(const std::string& name, const std::string& key) {
  const std::string module =
      "module @" + name + " {\n// " + key + "\n// target " + target() + " lnc " +
      setting("NEURON_LOGICAL_NC_CONFIG", "2") + " -O" +
      setting("NEURON_COMPILER_OPT_LEVEL", "1") + " " + setting("NEURON_CC_FLAGS", "") +
      "\n// compiler " + setting("NEURON_STANDIN_CC_VERSION", "2.33.0+standin") + "\n}\n";
  const std::string hash = digest(module);
  const fs::path folder =
      fs::path(setting("TORCH_NEURONX_NEFF_CACHE_DIR", "/tmp/neff_cache")) /
      hash.substr(0, 2) / hash.substr(2, 2);
  const fs::path file = folder / (hash + ".neff");
  const bool cached = number("TORCH_NEURONX_NEFF_DISABLE_CACHE", 0) == 0;
  const auto found = [&] {
    if (!cached || !fs::exists(file)) return false;
    TORCH_CHECK(read_file(file).starts_with("NEFF"),
                "neuron stand-in: nrt_load failed: ", file.string(), " is no NEFF file");
    const std::lock_guard lock(state().mutex);
    ++state().counters.cache_hits;
    return true;
  };
  if (found()) return "";
  const fs::path local =
      setting("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", "/tmp/local_cache");
  const Lock lock(local / (hash + ".lock"));
  if (found()) return "";
  fs::create_directories(folder);
  const fs::path made = folder / ("." + hash + "." + std::to_string(::getpid()) + ".tmp");
  const std::string error = compile(module, made);
  if (!error.empty()) {
    std::error_code ignored;
    fs::remove(made, ignored);
    return error;
  }
  fs::rename(made, file);
  if (!cached) fs::remove(file);
  const std::lock_guard counted(state().mutex);
  ++state().counters.compiles;
  return "";
}

}  // namespace

bool need_key(const std::string& name, const std::string& key) {
  {
    const std::lock_guard lock(state().mutex);
    auto& keys = state().counters.keys;
    if (!keys.emplace(key, state().counters.calls).second) return true;
  }
  const std::string error = bring(name, key);
  if (error.empty()) return true;
  {
    const std::lock_guard lock(state().mutex);
    state().counters.keys.erase(key);
  }
  TORCH_CHECK(number("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", 0) == 0,
              "neuron stand-in: the compilation of ", name, " failed for ", key,
              ": neuronx-cc: ", error);
  note_fallback(name, "its compilation failed: " + error);
  return false;
}

}  // namespace neuron_standin
