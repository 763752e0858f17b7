#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/health/health.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/doctor/doctor.h"

namespace longhaul::doctor {

/// The group with one rank of each node, and the names of the nodes in its order.
struct NodeLeaders {
  comm::Communicator& group;
  std::vector<std::string> names;
};

// Checks of several nodes together. The first two checks are Collective over the leaders
// and give the same result on all leaders.

/// Measures how far each node's clock is from the first node's clock. A round trip of a
/// message bounds the error of each measurement. The check fails if a clock is certainly
/// further away than options.max_skew_seconds.
cluster::HealthCheck check_skew(const NodeLeaders& leaders, const DoctorOptions& options);

/// Has each node write, sync and rename a file in the directory, then rename another file
/// over it. Fails if another node does not see each of them whole.
cluster::HealthCheck check_shared(const NodeLeaders& leaders, const fs::path& directory,
                                  const DoctorOptions& options);

/// Runs an all-reduce of numbers with known sums over a group, and measures the bandwidth
/// on this rank. Fails for a wrong sum. Collective over `group`.
cluster::HealthCheck check_all_reduce(comm::Communicator& group, const std::string& name,
                                      bool quick);

}  // namespace longhaul::doctor
