#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/clock.h"
#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/config/run_config.h"

namespace longhaul::doctor {

struct DoctorOptions {
  bool quick = false;
  /// Every node must see the same directory under each of these names.
  std::vector<fs::path> directories;
  /// The axes to try. Absent: only groups within nodes and between nodes are tried.
  std::optional<ParallelSection> parallel;
  /// Tries the devices of the run and the ways between them, in place of the axes over
  /// the host; returns nothing where the run computes on CPUs. May be empty. Collective
  /// over `world`; `node` are the ranks of this machine.
  std::function<std::vector<cluster::HealthCheck>(comm::Communicator& world,
                                                  comm::Communicator& node)>
      try_devices;
  cluster::HealthOptions health;
  std::string version;  ///< version of the program; must be the same on all nodes
  /// The libraries with which the program computes on this node, which must be the same
  /// on all nodes; or, if `computes` is false, why it cannot compute.
  std::string libraries;
  bool computes = true;
  std::string machine = comm::machine_name();
  std::function<double()> clock = system_time;
  double max_skew_seconds = 0.5;
  /// Within this time a file that one node has renamed must be visible to the others.
  double visible_seconds = 10.0;
};

/// What examine() found on each node, and between the nodes.
struct DoctorReport {
  int ranks = 0;
  std::vector<cluster::HealthReport> nodes;
  std::vector<cluster::HealthCheck> together;

  bool ok() const;
  Json to_json() const;
  /// Returns a table for people, with ok and FAILED and what to do.
  std::vector<std::string> lines() const;
};

/// Examines the nodes of a job. `own` is what this rank found on its node before the
/// ranks met; a node of which no rank has a report is checked now. Returns the same on
/// every rank. Throws TemporaryError if ranks do not answer. Collective.
DoctorReport examine(const std::shared_ptr<comm::Communicator>& world,
                     const DoctorOptions& options,
                     const std::optional<cluster::HealthReport>& own);

}  // namespace longhaul::doctor
