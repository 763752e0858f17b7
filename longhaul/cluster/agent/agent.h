#pragma once

#include <string>

#include "longhaul/cluster/agent/succession.h"
#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/supervisor/supervisor.h"

namespace longhaul::cluster {

/// Bounds of the time between two reports of an agent. The more agents there are, the
/// less often each one reports (report_seconds()): reading reports is most of a
/// supervisor's work.
inline constexpr double kLeastReportSeconds = 0.5;
inline constexpr double kMostReportSeconds = 2.0;

/// An agent has this many seconds from its start to connect. Otherwise its node is not
/// used.
inline constexpr double kAgentSeconds = 60.0;

struct AgentOptions {
  std::string node;  ///< this node's name in Slurm
  std::string host;  ///< where the supervisor listens
  int port = 0;
  std::string job;   ///< Slurm's number, or empty
  fs::path run_dir;  ///< holds the supervisor's lock
  NodeDirectories directories;
  double lease_seconds = kSupervisorLease;
  SuccessionRules succession;
};

/// Runs a supervisor's agent on one node: reports the node's workers, sends signals to
/// them, and traces the stacks of workers that hang. Returns the exit code when the agent
/// is told to end, or when nobody needs the agent. If the supervisor is lost or does not
/// answer, and its lease has run out, one of the agents stands in for it
/// (cluster/agent/succession.h). The process must have no other thread.
int run_agent(const AgentOptions& options, const Secret& secret);

}  // namespace longhaul::cluster
