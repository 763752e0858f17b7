#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/cluster/agent/agent.h"
#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/fleet/job_step.h"

namespace longhaul::cluster {

struct AgentFleetOptions {
  std::string job;                 ///< Slurm's number, or empty
  std::string here;                ///< the supervisor's own node
  std::vector<std::string> nodes;  ///< all nodes, spares included
  /// Nodes among `nodes` whose agents may never come.
  std::vector<std::string> not_awaited;
  std::string program;  ///< longhaul itself
  fs::path run_dir;
  /// The command line that starts a supervisor on another node when this one is lost.
  /// Every agent on another node may run it. Empty: no supervisor stands in.
  std::vector<std::string> stand_in;
  /// The nodes in the order in which their agents stand in; empty: the order of `nodes`.
  std::vector<std::string> successors;
  int lease_number = 0;  ///< number of the supervisor's lease
  /// Runs this command line on a node, with the secret as the first line of its input.
  std::function<JobStep(const std::string& node, std::vector<std::string> words,
                        const Secret& secret)>
      start_agent;
  /// Called when the agent of a step has connected; may be empty.
  std::function<void(const JobStep& step)> agent_came;
  /// Returns which of these nodes may be used now, according to whoever manages them.
  std::function<std::vector<std::string>(const std::vector<std::string>& nodes)> usable;
};

/// Returns the seconds between two reports of one of `agents` agents: 2,048 reports a
/// second in all, but often enough that a silent agent is noticed.
double report_seconds(size_t agents);

/// The Fleet of several machines. Each machine has an agent (cluster/agent/agent.h) that
/// outlives the workers and other machines. Agents prove with a secret of this job that
/// they belong to it.
class AgentFleet : public Fleet {
 public:
  /// Starts an agent on every node. Throws ConfigError, TemporaryError.
  explicit AgentFleet(AgentFleetOptions options);
  /// Ends the agents.
  ~AgentFleet() override;

  /// Returns the nodes on which workers may run now, in their order: nodes that may be
  /// used and whose agent answers. Waits at most `patience_seconds` for agents that have
  /// just been started.
  std::vector<std::string> usable_nodes(double patience_seconds = kAgentSeconds);

  void wait(double seconds) override;
  NodeReports reports() override;
  std::vector<std::string> lost_nodes() override;
  double longest_silence() const override;
  void signal(int number, const std::vector<int>& ranks) override;
  void ask_to_end(int cause) override;
  void forget() override;
  std::map<int, std::string> stacks(const std::vector<int>& ranks) override;
  std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                         const HealthOptions& options,
                                         double seconds) override;
  std::vector<NodePaths> view_paths(const std::vector<NeededPath>& needed) override;
  double stood_seconds() const override;
  void abandon() override;
  std::vector<std::string> take_notes() override;

 private:
  /// Waits, at most `seconds`, until each agent that was started has connected or ended.
  /// A node that did not answer an earlier call is awaited only if `asked` names it.
  void await_agents(double seconds, const std::vector<std::string>& asked = {});

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
