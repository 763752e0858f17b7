#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/layout/traffic.h"
#include "longhaul/measure/exchanges.h"
#include "longhaul/plan/machine.h"

namespace longhaul::apps {

/// A measured operation by which the ranks of a run exchange data in a step.
struct GroupExchange {
  layout::TrafficLine line;
  plan::GroupSpread spread;  ///< of rank 0's group
  /// What this rank sent and how fast, for each of measure::kExchangeBytes. A rank that
  /// sends nothing has zeros.
  std::vector<measure::SentBytes> points;
};

/// Measures the operations of the run's step between memory of `device`, in groups like
/// the run's. `node` are the ranks of this machine. All ranks get the same list, each
/// with rates of its own. Throws ConfigError if the run cannot lie on these ranks.
/// Collective over `world`.
std::vector<GroupExchange> measure_exchanges(const RunConfig& config, at::Device device,
                                             comm::Communicator& world,
                                             comm::Communicator& node);

}  // namespace longhaul::apps
