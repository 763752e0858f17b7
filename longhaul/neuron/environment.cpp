#include "longhaul/neuron/environment.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/neuron/python.h"
#include "longhaul/objects/local_copy.h"

namespace longhaul::neuron {
namespace {

constexpr const char* kArea = "neuron";
constexpr const char* kCores = "NEURON_RT_VISIBLE_CORES";
/// All ranks of a machine ask at the same time, and a shared file system may be cold.
constexpr double kLookSeconds = 300;

/// Returns a version without what follows a "+": "2.13.0" of "2.13.0+cpu".
std::string release_of(const std::string& version) {
  return version.substr(0, version.find('+'));
}

/// Returns the first two numbers of a version: {2, 13} of "2.13.3.0", {0, 0} of another
/// text.
std::pair<int, int> family_of(const std::string& version) {
  std::pair<int, int> family{0, 0};
  char dot = 0;
  std::istringstream(version) >> family.first >> dot >> family.second;
  return family;
}

}  // namespace

Environment look_at(const std::string& python) {
  const std::string advice =
      "name the interpreter of the environment that has torch_neuronx in "
      "run.neuron_python";
  if (!cluster::has_program(python) && !fs::exists(python)) {
    fail_config(kArea, "there is no Python interpreter \"{}\"; {}", python, advice);
  }
  cluster::CommandOptions options;
  options.deadline_seconds = kLookSeconds;
  const cluster::CommandResult said =
      cluster::run_command({python, "-c", kLookSource}, options);
  if (said.timed_out) {
    fail_config(kArea, "the interpreter {} does not answer within {} s; {}", python,
                kLookSeconds, advice);
  }
  if (!said.ok()) {
    fail_config(kArea, "the interpreter {} does not start (exit code {}): {}; {}", python,
                said.exit_code, said.errors, advice);
  }
  const Json json = parse_json(said.output, "the answer of " + python);
  const auto text = [&](const char* key) { return json.at(key).get<std::string>(); };
  return {text("executable"),
          text("version"),
          text("libpython"),
          text("torch"),
          text("libtorch"),
          text("backend"),
          json.at("native").get<bool>(),
          text("backend_version"),
          text("compiler"),
          text("compiler_version"),
          text("runtime")};
}

void check_environment(const Environment& of, const std::string& torch) {
  if (of.torch.empty()) {
    fail_config(
        kArea,
        "the environment of {} has no PyTorch; install torch {} and torch_neuronx "
        "there, or name another interpreter in run.neuron_python",
        of.executable, torch);
  }
  if (release_of(of.torch) != release_of(torch)) {
    fail_config(
        kArea,
        "the environment of {} has PyTorch {}, and this program is built with {}; "
        "install torch {} and the torch_neuronx of that version there",
        of.executable, of.torch, torch, release_of(torch));
  }
  if (of.backend.empty()) {
    fail_config(kArea,
                "the environment of {} has no torch_neuronx, AWS's backend for Trainium; "
                "install it there from AWS's package index, or name another interpreter "
                "in run.neuron_python",
                of.executable);
  }
  if (!of.native) {
    fail_config(
        kArea,
        "{} is torch_neuronx of PyTorch/XLA or an empty package of that name, and "
        "not the native backend: it has no extension module _C; install "
        "torch_neuronx of the family {}.{} from AWS's package index",
        of.backend, family_of(torch).first, family_of(torch).second);
  }
  const std::pair<int, int> family = family_of(of.backend_version);
  if (!of.backend_version.empty() && family != family_of(torch)) {
    fail_config(kArea,
                "torch_neuronx {} in {} is {} than PyTorch {}; install the "
                "torch_neuronx of this PyTorch",
                of.backend_version, of.backend,
                family < family_of(torch) ? "older" : "newer", torch);
  }
  if (of.libpython.empty()) {
    fail_config(kArea,
                "the interpreter {} (Python {}) has no shared library libpython, which "
                "the program opens; install the system's package libpython3-dev, or "
                "Python that was built with --enable-shared",
                of.executable, of.version);
  }
  if (of.compiler.empty()) {
    fail_config(kArea,
                "the compiler neuronx-cc is neither in PATH nor beside {}; install the "
                "package neuronx-cc there",
                of.executable);
  }
}

std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> cores;
  const auto fail = [&] {
    fail_config(
        kArea,
        "NEURON_RT_VISIBLE_CORES = \"{}\" is no list of cores; a list is \"0-3\", "
        "\"5\" or \"0,2\"",
        text);
  };
  const auto number = [&](std::string_view digits) {
    int value = -1;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) fail();
    return value;
  };
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = number(std::string_view(part).substr(0, dash));
    const int last =
        dash == part.npos ? first : number(std::string_view(part).substr(dash + 1));
    if (last < first || last - first > 4096) fail();
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  if (cores.empty()) fail();
  return cores;
}

std::vector<int> cores_of(const std::vector<std::string>& visible) {
  const bool shared =
      std::ranges::adjacent_find(visible, std::not_equal_to()) == visible.end();
  std::vector<int> cores;
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    if (visible[rank].empty()) {
      cores.push_back(static_cast<int>(rank));
      continue;
    }
    const std::vector<int> own = parse_cores(visible[rank]);
    if (shared && own.size() > 1 && own.size() < visible.size()) {
      fail_config(kArea,
                  "this machine has {} ranks, and {} = \"{}\" names {} cores; start one "
                  "rank per core",
                  visible.size(), kCores, visible[rank], own.size());
    }
    cores.push_back(shared && own.size() > 1 ? own[rank] : own.front());
  }
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    const auto first = std::ranges::find(cores, cores[rank]) - cores.begin();
    if (first == static_cast<std::ptrdiff_t>(rank)) continue;
    fail_config(kArea,
                "ranks {} and {} of this machine would take the same core {} ({} = "
                "\"{}\"); unset the variable, name a core for each rank (\"0-{}\"), or "
                "have the launcher give each rank its own",
                first, rank, cores[rank], kCores, visible[rank], cores.size() - 1);
  }
  return cores;
}

std::vector<std::pair<std::string, std::string>> variables_for(
    const Place& place, const std::function<std::string(const std::string&)>& given) {
  std::vector<std::pair<std::string, std::string>> set;
  const auto keep_or_set = [&](const char* name, const std::string& value) {
    if (given(name).empty()) set.emplace_back(name, value);
  };
  const auto need = [&](const char* name, const std::string& value, const char* why) {
    const std::string have = given(name);
    if (have.empty()) set.emplace_back(name, value);
    if (have.empty() || have == value) return;
    fail_config(kArea,
                "{} = \"{}\" in the environment, but a run needs \"{}\": {}; unset it",
                name, have, value, why);
  };
  if (!place.visible.empty()) {
    const std::vector<int> cores = cores_of(place.visible);
    const std::string core =
        std::to_string(cores.at(static_cast<size_t>(place.local_rank)));
    if (given(kCores) != core) set.emplace_back(kCores, core);
  }
  need("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "1",
       "an operation whose compilation fails must not run on the CPU instead");
  keep_or_set("TORCH_NEURONX_SKIP_OP_PRECONDITIONS", "1");
  keep_or_set("NEURON_LAUNCH_BLOCKING", "0");
  keep_or_set("NEURON_RT_ENABLE_HOST_CC", "1");
  if (!place.cache.empty()) {
    need(kCacheVariable, place.cache, "it is run.compile_cache_dir");
  } else {
    keep_or_set(kCacheVariable, objects::default_cache().parent_path() / "neuron");
  }
  if (place.efa) {
    keep_or_set("FI_PROVIDER", "efa");
    keep_or_set("FI_EFA_USE_DEVICE_RDMA", "1");
    // An older kernel does not keep what the network has registered out of the processes
    // that are forked.
    if (family_of(place.kernel) < std::pair(5, 15)) keep_or_set("FI_EFA_FORK_SAFE", "1");
  }
  // Another compiler in PATH may be of another version than the environment.
  const std::string folder = fs::path(place.compiler).parent_path().string();
  const std::string path = given("PATH");
  if (!folder.empty() && !(path + ":").starts_with(folder + ":")) {
    set.emplace_back("PATH", path.empty() ? folder : folder + ":" + path);
  }
  return set;
}

void check_instance(const std::string& name) {
  if (!name.starts_with("trn1") && !name.starts_with("inf")) return;
  fail_config(
      kArea,
      "this machine is a {}, which AWS's native backend does not serve. It serves "
      "trn2 and trn3, and training on trn1 ended with PyTorch/XLA; take trn2 or "
      "trn3 instances (a checkpoint goes on there), or GPUs",
      name);
}

std::string kernel_version() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

bool has_efa() {
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
    std::error_code absent;
    const fs::path driver = fs::read_symlink(device.path() / "device" / "driver", absent);
    if (driver.filename() == "efa") return true;
  }
  return false;
}

}  // namespace longhaul::neuron
