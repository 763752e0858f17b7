#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/doctor/doctor.h"

namespace longhaul::doctor {

/// One rank of each node, in the order of their lowest ranks, and its names.
struct NodeLeaders {
  comm::Communicator& group;
  std::vector<std::string> names;
};

// What nodes are to each other. Each is Collective over the leaders and gives the same
// result on all of them.

/// How far the clocks are from the first node's, bounded by round trips.
cluster::HealthCheck check_skew(const NodeLeaders& leaders, const DoctorOptions& options);

/// Each node writes, syncs and renames a file, then renames another over it; all others
/// must see each whole, under the same directory.
cluster::HealthCheck check_shared(const NodeLeaders& leaders, const fs::path& directory,
                                  const DoctorOptions& options);

/// All-reduces numbers of known sums over a group; the text has the bandwidth. Collective
/// over `group`; the figures are this rank's.
cluster::HealthCheck check_all_reduce(comm::Communicator& group, const std::string& name,
                                      bool quick);

}  // namespace longhaul::doctor
