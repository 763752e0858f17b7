#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"

namespace longhaul::apps {

/// How `doctor` comes to the devices of a run.
struct DoctorDevices {
  /// Replaces `longhaul`, which knows no devices, by longhaul-torch. Does nothing there.
  std::function<void()> become_torch_program;
  /// Tries the run's devices and the ways between them. Collective over `world`; `node`
  /// are the ranks of this machine.
  std::function<std::vector<cluster::HealthCheck>(
      const RunConfig& config, comm::Communicator& world, comm::Communicator& node)>
      try_them;
};

/// DoctorDevices::try_them of longhaul-torch. Returns nothing where run.device means the
/// CPU here. Throws ConfigError if the device is absent.
std::vector<cluster::HealthCheck> try_devices(const RunConfig& config,
                                              comm::Communicator& world,
                                              comm::Communicator& node);

}  // namespace longhaul::apps
