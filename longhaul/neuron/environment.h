#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::neuron {

/// The variable that names the folder of compiled kernels.
inline constexpr const char* kCacheVariable = "TORCH_NEURONX_NEFF_CACHE_DIR";

/// What an environment of Python has: the output of look.py.
struct Environment {
  std::string executable;
  std::string version;    ///< of Python
  std::string libpython;  ///< path of its shared library; empty if it has none
  std::string torch;      ///< version; empty without PyTorch
  std::string libtorch;   ///< path of libtorch_cpu.so
  std::string backend;    ///< folder of torch_neuronx; empty without it
  bool native = false;    ///< the backend is the native one, not that of PyTorch/XLA
  std::string backend_version;
  std::string compiler;  ///< path of neuronx-cc; empty if it is not found
  std::string compiler_version;
  std::string runtime;  ///< file name of the runtime library; empty if it is not found
};

/// Asks the interpreter `python` (a name in PATH or a path) in a process of its own.
/// Throws ConfigError if there is no such interpreter or if it does not answer.
Environment look_at(const std::string& python);

/// Throws ConfigError, which says what to do, if the environment cannot serve this
/// program. It needs a shared libpython, PyTorch of the version `torch`, the native
/// backend of the same family (its first two numbers), and a compiler.
void check_environment(const Environment& environment, const std::string& torch);

/// What a process needs of the machine.
struct Place {
  int local_rank = 0;  ///< this rank's number on its machine
  /// NEURON_RT_VISIBLE_CORES of each rank of the machine, as people or launchers have set
  /// it; empty: the process sees all cores.
  std::vector<std::string> visible = {""};
  bool efa = false;         ///< the machine has network devices of EFA
  std::string kernel = {};  ///< the version of its kernel, as "5.10.0-28-cloud-amd64"
  /// Folder of compiled kernels; empty: that of the environment, else one of the user's
  /// caches.
  std::string cache = {};
  std::string compiler = {};
};

/// Returns the variables that the process must set before the backend is loaded. `given`
/// returns a variable's value, or an empty text. What people have set stays where it
/// agrees. Throws ConfigError if it contradicts what the program needs.
std::vector<std::pair<std::string, std::string>> variables_for(
    const Place& place, const std::function<std::string(const std::string&)>& given);

/// Returns the cores of a text as NEURON_RT_VISIBLE_CORES has it: "0-3", "5" or "0,2".
/// Throws ConfigError for another text.
std::vector<int> parse_cores(const std::string& text);

/// Returns the core that each rank of a machine takes; `visible` is as in Place. A list
/// that all ranks have is shared out, and of a list of its own a rank takes the first.
/// Throws ConfigError if there are too few cores or if two ranks would take the same one.
std::vector<int> cores_of(const std::vector<std::string>& visible);

/// Returns the version of the kernel that runs.
std::string kernel_version();

/// Throws ConfigError if the native backend does not serve instances of this name.
void check_instance(const std::string& name);

/// Returns whether the machine has network devices of EFA.
bool has_efa();

}  // namespace longhaul::neuron
