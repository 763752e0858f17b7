#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::doctor {

/// Returns the ways between ranks that a library of collectives has taken, from its log
/// in NCCL's form: "P2P/CUMEM", "SHM", "NET/Socket", "NET/AWS Libfabric/GDRDMA". Numbers
/// of channels and network devices are left out.
std::set<std::string> ways_in(std::string_view log);

/// Returns the names of this machine's network devices for RDMA, InfiniBand's and EFA's
/// alike. `root` is where /sys is, for tests.
std::vector<std::string> rdma_devices(const fs::path& root = "/");

/// Names the ways that the ranks' libraries have taken. `log` is the log of this rank's
/// library, `fabric` are the rdma_devices() of its machine. Sockets on a machine that has
/// such devices are a warning. The check is skipped if no log names a way. All ranks get
/// the same check. Collective.
cluster::HealthCheck check_ways(comm::Communicator& world, std::string_view log,
                                const std::vector<std::string>& fabric);

/// Where a rank runs in its machine.
struct NumaPlace {
  std::vector<int> cores;  ///< NUMA nodes of the CPUs that it may use
  int device = -1;         ///< NUMA node of its device; -1: not known
};

/// Names the NUMA nodes of the ranks and their devices. A rank that may use no CPU of its
/// device's node is a warning. All ranks get the same check. Collective.
cluster::HealthCheck check_numa(comm::Communicator& world, const NumaPlace& mine);

}  // namespace longhaul::doctor
