#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/layout_description.h"
#include "longhaul/system/log.h"
#include "longhaul/tensor/flat_buffers.h"

// These functions are called in this order before a session is built. Each function logs
// what a person has to know: `log` is the log of rank 0, and the other ranks pass a
// silent one. Each function throws ConfigError for settings that do not fit.

namespace longhaul::session {

class Session;

/// The ranks of a run, and what this rank computes with.
struct Machine {
  std::shared_ptr<comm::Communicator> world;
  std::shared_ptr<comm::Communicator> node;  ///< the ranks of this machine
  tensor::DTypePolicy policy;
  at::Device device = at::kCPU;
  std::string threads;  ///< how many threads a rank has, why, and how they wait
  /// FLOP/s in the compute dtype, from run.hardware; 0: unknown.
  double hardware_peak = 0.0;
};

/// Settles the device of this process, whether results repeat, and the threads. Unlike
/// settle_machine, `world` need not be the ranks of the run. Collective.
Machine settle_process(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                       system::Logger& log);

/// Settles what needs no model: the ranks, the device, whether results repeat, and the
/// threads of this process. Collective.
Machine settle_machine(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                       system::Logger& log);

/// Reads the model from `config_json`, and checks the settings against it.
ModelConfig settle_model(const RunConfig& config, const fs::path& config_json,
                         system::Logger& log);

/// Returns the layout that the ranks are to have. Collective.
layout::LayoutDescription settle_layout(const RunConfig& config,
                                        const ModelDescription& model,
                                        const Machine& machine);

/// Throws ConfigError, which names them, if operations of this rank ran on the CPU
/// because its device lacks them (device::plugin_fallbacks). With run.device_fallback =
/// "warn" it does nothing.
void refuse_fallbacks(const Session& session);

/// Returns a warning that names the operations which ran on the CPU since the last call;
/// empty if there are none.
std::string fallback_warning();

/// Calls refuse_fallbacks(), and logs fallback_warning(). Must be called after a step.
void check_fallbacks(const Session& session, system::Logger& log);

}  // namespace longhaul::session
