#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"

namespace longhaul::device {

// AWS's native backend for Trainium lives in Python. A library of its own beside the
// program, liblonghaul_neuron.so, starts an interpreter and loads the backend. So the
// program itself is free of Python.

/// The first device of Neuron's driver.
inline constexpr const char* kNeuronDriver = "/dev/neuron0";

/// What the loading of the backend needs to know.
struct NeuronStart {
  std::string python;  ///< the interpreter of the environment: a name in PATH or a path
  int local_rank = 0;  ///< this rank's number on its machine
  /// NEURON_RT_VISIBLE_CORES of each rank of the machine, as it was set; empty: the
  /// process sees all cores.
  std::vector<std::string> cores = {""};
  /// Folder of compiled kernels; empty: that of the environment, else of the user's
  /// caches.
  std::string cache = {};
  bool only_cached = false;         ///< nothing is to be compiled
  int rank = 0;                     ///< this process's number among all ranks
  int ranks = 1;                    ///< with several, the backend's process group is made
  double deadline_seconds = 600.0;  ///< limit of a wait for other ranks
  /// Where other machines reach this one.
  std::string address = {};
  /// Returns rank 0's text on every rank. Collective.
  std::function<std::string(const std::string&)> of_first = {};
};

/// What was loaded.
struct NeuronLoaded {
  std::string versions;              ///< of backend, compiler and runtime
  std::string instance;              ///< the machine's type, as "trn2.48xlarge"
  std::vector<std::string> remarks;  ///< for the log: the variables that were set
};

/// Loads the backend, which becomes the plug-in of the process (plugin.h). A second call
/// returns what the first call loaded. Sets variables of the environment, so no other
/// thread may read it meanwhile. Throws ConfigError, which says what to do, if the
/// library or anything that it needs is absent or does not fit.
const NeuronLoaded& load_neuron(const NeuronStart& start);

/// Returns whether a run is to use the backend: with run.device = "neuron", and with
/// "auto" and no plug-in on a machine that has `driver`, a device of Neuron's driver.
bool means_neuron(const RunSection& run, const fs::path& driver = kNeuronDriver);

/// Loads the backend where a run is to use it, as means_neuron() says.
/// `world` has all ranks, and `node` those of this machine. Returns null where the run
/// does not use the backend. Throws as load_neuron() does. Collective.
const NeuronLoaded* load_neuron_for(const RunSection& run, comm::Communicator& world,
                                    comm::Communicator& node,
                                    const fs::path& driver = kNeuronDriver);

/// Returns what was loaded; null if no backend is loaded.
const NeuronLoaded* loaded_neuron();

}  // namespace longhaul::device
