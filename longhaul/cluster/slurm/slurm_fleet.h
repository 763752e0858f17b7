#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/cluster/fleet.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

struct SlurmFleetOptions {
  std::string job;
  std::string here;                ///< the supervisor's own node
  std::vector<std::string> nodes;  ///< of the allocation, spares among them
  std::string program;             ///< longhaul itself
  fs::path run_dir;
  /// Starts a supervisor on another node of the job when this one is lost: the deputy's.
  std::vector<std::string> stand_in;
};

/// The nodes of a Slurm job, each with an agent that is a job step of its own, so that it
/// outlives the workers and other nodes. The agents prove with a secret of this job that
/// they belong to it; it travels in their environment alone.
class SlurmFleet : public Fleet {
 public:
  /// Starts an agent on every node. ConfigError, TemporaryError.
  SlurmFleet(SlurmFleetOptions options, const SlurmClient& slurm);
  /// Ends the agents.
  ~SlurmFleet() override;

  /// Nodes that may be used for workers now, in the allocation's order: those that still
  /// belong to the job, are usable for Slurm, and whose agent answers. Waits for agents
  /// that have just been started, at most this long.
  std::vector<std::string> usable_nodes(double patience_seconds);

  void wait(double seconds) override;
  std::vector<NodeReport> reports() override;
  std::vector<std::string> lost_nodes() override;
  void signal(int number, const std::vector<int>& ranks) override;
  void forget() override;
  std::map<int, std::string> stacks(const std::vector<int>& ranks) override;
  std::vector<HealthReport> check_health(const std::vector<std::string>& nodes,
                                         const HealthOptions& options,
                                         double seconds) override;
  std::vector<std::string> take_notes() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Job steps of a run carry these names.
inline constexpr const char* kAgentStep = "longhaul-agent";
inline constexpr const char* kWorkerStep = "longhaul-train";

/// Ends the steps of these names that an earlier supervisor of the job has left, but not
/// the one that the caller is part of.
void cancel_steps(const SlurmClient& slurm, const SlurmJob& job,
                  const std::vector<std::string>& names);

}  // namespace longhaul::cluster
