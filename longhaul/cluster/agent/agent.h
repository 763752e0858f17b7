#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/cluster/agent/succession.h"
#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/supervisor/supervisor.h"

namespace longhaul::cluster {

/// An agent reports at least so often, and the less often, the more there are
/// (report_seconds()): reading them is most of a supervisor's work.
inline constexpr double kLeastReportSeconds = 0.5;
inline constexpr double kMostReportSeconds = 2.0;

struct AgentOptions {
  std::string node;  ///< this node's name in Slurm
  std::string host;  ///< where the supervisor listens
  int port = 0;
  NodeDirectories directories;
  /// The supervisor's lock: whose lease runs out when it is lost.
  fs::path supervisor_lock;
  double lease_seconds = kSupervisorLease;
  SuccessionRules succession;
  /// Runs a supervisor with these words in place of the one that is lost; `raised` tells
  /// the signal that this process was sent, or 0. Returns an exit code, 77 where another
  /// was first.
  std::function<int(const std::vector<std::string>& words,
                    const std::function<int()>& raised)>
      stand_in;
  /// Gives a job that still runs back to the queue; `words` as above.
  std::function<void(const std::vector<std::string>& words)> requeue;
  /// The same where the run's storage does not answer: touches none of its files.
  std::function<void()> requeue_without_storage;
  /// Where the supervisor has ended and its machine may be lost: requeue_deserted.
  std::function<void(const std::vector<std::string>& words)> requeue_deserted;
};

/// The eyes and hands of a supervisor on one node: reports the node's workers, sends them
/// signals, looks at the stacks of those that hang. Ends when it is told to, or when
/// nobody needs it. Where the supervisor is lost, or does not answer, and its lease has
/// run out, the first of the agents that can stands in for it
/// (cluster/agent/succession.h). Returns the exit code. One thread; the process must have
/// no other.
int run_agent(const AgentOptions& options, const Secret& secret);

}  // namespace longhaul::cluster
