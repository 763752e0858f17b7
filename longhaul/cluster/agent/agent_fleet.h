#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/fleet.h"
#include "longhaul/cluster/fleet/job_step.h"

namespace longhaul::cluster {

struct AgentFleetOptions {
  std::string job;                       ///< Slurm's number, or empty
  std::string here;                      ///< the supervisor's own node
  std::vector<std::string> nodes;        ///< spares among them
  std::vector<std::string> not_awaited;  ///< of these: their agents may never come
  std::string program;                   ///< longhaul itself
  fs::path run_dir;
  /// Starts a supervisor on another node of the job when this one is lost: every agent on
  /// another node may. Empty: none.
  std::vector<std::string> stand_in;
  /// The nodes in the order in which their agents do; empty: that of `nodes`.
  std::vector<std::string> successors;
  int lease_number = 0;  ///< of the supervisor's lease
  /// Starts these words on a node, where the secret is the first line of their input.
  std::function<JobStep(const std::string& node, std::vector<std::string> words,
                        const Secret& secret)>
      start_agent;
  /// Called when the agent of such a step has come; may be empty.
  std::function<void(const JobStep& step)> agent_came;
  /// The names among these that may be used now, by whoever manages the nodes.
  std::function<std::vector<std::string>(const std::vector<std::string>& nodes)> usable;
};

/// How often each of so many agents is to report: 2,048 reports a second in all, as far
/// as silence can still be told.
double report_seconds(size_t agents);

/// Several machines, each with an agent (cluster/agent/agent.h) that outlives the workers
/// and other machines. The agents prove with a secret of this job that they belong to it.
class AgentFleet : public Fleet {
 public:
  /// Starts an agent on every node. ConfigError, TemporaryError.
  explicit AgentFleet(AgentFleetOptions options);
  /// Ends the agents.
  ~AgentFleet() override;

  /// Nodes that may be used for workers now, in their order: those that may be used and
  /// whose agent answers. Waits for agents that have just been started, at most this
  /// long.
  std::vector<std::string> usable_nodes(double patience_seconds);

  void wait(double seconds) override;
  NodeReports reports() override;
  std::vector<std::string> lost_nodes() override;
  double longest_silence() const override;
  void signal(int number, const std::vector<int>& ranks) override;
  void forget() override;
  std::map<int, std::string> stacks(const std::vector<int>& ranks) override;
  std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                         const HealthOptions& options,
                                         double seconds) override;
  std::vector<std::string> take_notes() override;

 private:
  /// Until those that were started have come, or ended; those asked for by name also
  /// where they are not awaited else.
  void await_agents(double seconds, const std::vector<std::string>& asked = {});

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
