#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/version.h>

#include <cstdlib>
#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/device/plugin.h"
#include "longhaul/device/tensor_collectives.h"
#include "longhaul/neuron/environment.h"
#include "longhaul/neuron/interpreter.h"
#include "longhaul/neuron/watched_compiler.h"
#include "longhaul/tensor/device_limits.h"

// The functions that the program calls of liblonghaul_neuron.so.

namespace longhaul::neuron {
namespace {

constexpr const char* kArea = "neuron";
/// A tensor of 4 GiB or more overflowed in an older runtime.
constexpr int64_t kMostBytes = (int64_t{1} << 32) - 1;

/// Returns the interpreter, which lives from the loading to the end of the process.
std::unique_ptr<Interpreter>& interpreter() {
  static auto* const made = new std::unique_ptr<Interpreter>;
  return *made;
}

/// Returns the compiler that the backend starts; it lives as the interpreter does.
std::unique_ptr<WatchedCompiler>& compiler() {
  static auto* const made = new std::unique_ptr<WatchedCompiler>;
  return *made;
}

std::string variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

/// Makes the backend start the compiler that notes what it compiles.
void watch_compiler(const Environment& environment, bool only) {
  const std::string cache = variable(kCacheVariable);
  check_cache(cache, only);
  compiler() = std::make_unique<WatchedCompiler>(environment.compiler, cache, only);
  const std::string path = compiler()->folder().string() + ":" + variable("PATH");
  ::setenv("PATH", path.c_str(), /*overwrite=*/1);
}

/// Returns the path of the LibTorch that this process runs with.
std::string own_libtorch() {
  Dl_info info{};
  const auto address = reinterpret_cast<const void*>(&at::show_config);
  return ::dladdr(address, &info) != 0 ? info.dli_fname : "";
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat one{}, other{};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Returns a remark if the environment has another LibTorch of the same version. The
/// loader keeps the one that runs. Throws ConfigError if the files differ in size: then
/// they are different builds.
std::string compare_libtorch(const Environment& environment) {
  const std::string own = own_libtorch();
  if (is_same_file(own, environment.libtorch)) return {};
  std::error_code error;
  const auto size = fs::file_size(own, error);
  if (error || size != fs::file_size(environment.libtorch, error) || error) {
    fail_config(kArea,
                "this program runs with {}, and the environment of {} has another build "
                "of LibTorch, {}; install the same build of torch in both",
                own, environment.executable, environment.libtorch);
  }
  return fmt::format("the LibTorch of the environment, {}, is a copy of {}, which runs",
                     environment.libtorch, own);
}

/// Calls a function that imports the backend or starts its runtime. Throws ConfigError
/// with the exception's text if it fails.
Json import_backend(const Environment& environment, const char* function,
                    const Json& arguments = Json::object()) {
  try {
    return interpreter()->call(function, arguments);
  } catch (const InputError& error) {
    const char* const core = std::getenv("NEURON_RT_VISIBLE_CORES");
    fail_config(kArea,
                "the backend does not load on core {} (NEURON_RT_VISIBLE_CORES): {}; "
                "start one rank per core of this machine, end other processes that "
                "hold the core, and look whether {} imports torch_neuronx by itself",
                core == nullptr ? "?" : core, error.message(), environment.executable);
  }
}

/// Throws ConfigError if the interpreter is not the one that look_at() asked.
void check_interpreter(const Environment& environment) {
  const Json is = interpreter()->call("interpreter");
  if (is.at("version") == environment.version) return;
  fail_config(kArea,
              "{} is Python {}, and the interpreter {} is Python {}; its own "
              "libpython is needed",
              environment.libpython, is.at("version").get<std::string>(),
              environment.executable, environment.version);
}

/// The backend's process groups, by the functions of bridge.py.
class ProcessGroups : public device::TensorCollectives {
 public:
  ProcessGroups(int rank, std::string version)
      : rank_(rank), version_(std::move(version)) {}

  std::string describe() const override {
    return "process groups of torch_neuronx " + version_;
  }
  int rank() const override { return rank_; }
  int64_t make(const std::string& name, const std::vector<int>& ranks,
               double seconds) override {
    return interpreter()
        ->call("group", {{"name", name}, {"ranks", ranks}, {"seconds", seconds}})
        .get<int64_t>();
  }
  int64_t start(int64_t group, comm::Verb verb, comm::ReduceOp op, int root,
                const at::Tensor& in, const at::Tensor& out) override {
    // An operator takes tensors without Python's headers. No gradient flows through it.
    using Start = int64_t(int64_t, c10::string_view, c10::string_view, int64_t,
                          const at::Tensor&, const at::Tensor&);
    static const auto call = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("longhaul_neuron::start", "")
                                 .typed<Start>();
    const at::AutoDispatchBelowADInplaceOrView below;
    try {
      return call.call(group, comm::verb_name(verb),
                       op == comm::ReduceOp::Max ? "max" : "sum", root, in, out);
    } catch (const std::exception& error) {
      throw InputError(kArea, error.what());
    }
  }
  bool is_done(int64_t operation) override {
    return interpreter()->call("is_done", {{"operation", operation}}).get<bool>();
  }
  void order(int64_t operation) override {
    interpreter()->call("order", {{"operation", operation}});
  }
  void wait_for_device() override { interpreter()->call("wait_for_device"); }

 private:
  int rank_;
  std::string version_;
};

std::unique_ptr<ProcessGroups>& process_groups() {
  static auto* const made = new std::unique_ptr<ProcessGroups>;
  return *made;
}

/// Makes the backend's process group of all ranks, which must come before the first use
/// of its runtime. The ranks meet at a store of rank 0, whose port goes over MPI.
void join_ranks(const Environment& environment, const device::NeuronStart& start,
                const std::string& version) {
  if (start.ranks == 1) return;
  std::string meeting;
  if (start.rank == 0) {
    const Json port = import_backend(environment, "store",
                                     {{"address", start.address},
                                      {"ranks", start.ranks},
                                      {"seconds", start.deadline_seconds}});
    meeting = json_text(Json{{"address", start.address}, {"port", port}});
  }
  Json arguments = parse_json(start.of_first(meeting), "the store of rank 0");
  arguments["rank"] = start.rank;
  arguments["ranks"] = start.ranks;
  arguments["seconds"] = start.deadline_seconds;
  import_backend(environment, "join", arguments);
  process_groups() = std::make_unique<ProcessGroups>(start.rank, version);
}

device::NeuronLoaded load(const device::NeuronStart& start) {
  const Environment environment = look_at(start.python);
  check_environment(environment, TORCH_VERSION);
  device::NeuronLoaded loaded;
  if (const std::string remark = compare_libtorch(environment); !remark.empty()) {
    loaded.remarks.push_back(remark);
  }
  const Place place{.local_rank = start.local_rank,
                    .visible = start.cores,
                    .efa = has_efa(),
                    .kernel = kernel_version(),
                    .cache = start.cache,
                    .compiler = environment.compiler};
  const auto variables = variables_for(place, variable);
  for (const auto& [name, value] : variables) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
    if (name != "PATH") loaded.remarks.push_back(fmt::format("{}={}", name, value));
  }
  watch_compiler(environment, start.only_cached);
  const KeptSignals signals;
  interpreter() =
      std::make_unique<Interpreter>(environment.libpython, environment.executable);
  check_interpreter(environment);
  const Json backend = import_backend(environment, "load");
  if (backend.at("registered") != "neuron") {
    fail_config(
        kArea,
        "{} registers the device \"{}\" and not \"neuron\", as the native backend "
        "does; install torch_neuronx of AWS's native backend",
        environment.backend, backend.at("registered").get<std::string>());
  }
  const auto version = backend.at("version").get<std::string>();
  Environment known = environment;
  known.backend_version = version;
  check_environment(known, TORCH_VERSION);
  if (!backend.at("listed").get<bool>()) {
    fail_config(kArea,
                "torch_neuronx {} does not say which operations ran on the CPU "
                "(get_fallback_ops); install the torch_neuronx of PyTorch {}",
                version, TORCH_VERSION);
  }
  join_ranks(environment, start, version);
  const Json device = import_backend(environment, "device");
  check_instance(device.at("instance").get<std::string>());
  loaded.instance = device.at("instance");
  loaded.versions = fmt::format(
      "torch_neuronx {}, neuronx-cc {}, runtime {}", version,
      environment.compiler_version.empty() ? "?" : environment.compiler_version,
      environment.runtime.empty() ? "?" : environment.runtime);
  return loaded;
}

}  // namespace
}  // namespace longhaul::neuron

#pragma GCC visibility push(default)
extern "C" {

void longhaul_neuron_load(const longhaul::device::NeuronStart& start,
                          longhaul::device::NeuronLoaded& loaded) {
  loaded = longhaul::neuron::load(start);
}

void longhaul_device_limits(longhaul::tensor::DeviceLimits* limits) {
  limits->wide_types = limits->writes_views = limits->any_shapes = false;
  limits->most_bytes = longhaul::neuron::kMostBytes;
}

longhaul::device::TensorCollectives* longhaul_device_groups() {
  return longhaul::neuron::process_groups().get();
}

void longhaul_device_fallbacks(std::vector<std::string>& names) {
  names =
      longhaul::neuron::interpreter()->call("fallbacks").get<std::vector<std::string>>();
}

void longhaul_device_memory(int index, longhaul::device::PluginMemory* memory) {
  const longhaul::Json told =
      longhaul::neuron::interpreter()->call("memory", {{"index", index}});
  *memory = {told.at("total"), told.at("held"), told.at("used"), told.at("peak")};
}

void longhaul_device_compiled(std::vector<longhaul::device::CompiledKey>& keys) {
  if (longhaul::neuron::compiler()) keys = longhaul::neuron::compiler()->compiled();
}

void longhaul_device_close() {
  try {
    longhaul::neuron::interpreter()->call("close");
  } catch (const longhaul::Error& error) {
    // The process ends, and its exit code is already known.
    fmt::print(stderr, "{}\n", error.what());
  }
  longhaul::neuron::compiler().reset();
}

}  // extern "C"
#pragma GCC visibility pop
