#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/cluster/process/command.h"

namespace longhaul::cluster {

using Environment = std::function<const char*(const char*)>;

/// What the environment of a batch script or step says of its job. The environment does
/// not change when a node dies; query_job returns the present nodes.
struct SlurmJob {
  std::string id;
  std::string name;
  std::vector<std::string> nodes;  ///< the allocated nodes
  std::string here;                ///< this node's name in Slurm
  int restarts = 0;                ///< 0 in the first life
  std::string step;                ///< "123.4" in a step; empty in the batch script
};

/// Returns nothing outside of a Slurm job. Throws InputError for values that no Slurm
/// writes.
std::optional<SlurmJob> slurm_job(const Environment& environment = std::getenv);

/// What Slurm says of a job now.
struct JobStatus {
  std::string state;               ///< RUNNING, PENDING, COMPLETING, TIMEOUT ...
  std::vector<std::string> nodes;  ///< nodes that still belong to the job
  std::string batch_host;          ///< may be a lost node
  double seconds_left = 0;         ///< infinity without a time limit
  std::string reason;              ///< why the job waits: BeginTime, Resources ...
};

struct NodeStatus {
  std::string name;
  std::string state;  ///< idle, allocated, mixed, down, drained ... without marks
  bool responds = true;
  bool boots = false;  ///< a job has it before it has powered up or rebooted
  /// Returns whether Slurm gives the node to steps, now and soon.
  bool usable() const;
};

/// What a job asks Slurm for.
struct JobRequest {
  std::string partition;              ///< or several: "a,b"
  std::vector<std::string> excluded;  ///< nodes that the job must not get
};

/// Patience with a controller that is down or just starting.
struct SlurmPatience {
  double seconds = 0;
  double pause_seconds = 2;
  /// Called once, when the waiting begins; may be empty.
  std::function<void(const std::string& line)> tell = {};
  std::function<void()> turn = {};  ///< called before each further question; may be empty
};

struct StepStatus {
  std::string id;  ///< "123.4"
  std::string name;
  std::vector<std::string> nodes;
};

/// Runs Slurm's programs, each with a deadline. Throws TemporaryError, with the program's
/// last words, for a program that fails or does not answer: slurmctld may be starting
/// again. Threads may share one client.
class SlurmClient {
 public:
  /// A test's `runner` stands in for run_command.
  using Runner = std::function<CommandResult(const std::vector<std::string>& words,
                                             const CommandOptions& options)>;
  explicit SlurmClient(double deadline_seconds = 20, Runner runner = {});
  /// Returns a client that waits for a controller that does not answer. The allocation
  /// stays unchanged during the wait.
  SlurmClient waiting(SlurmPatience patience) const;

  /// Returns nothing when Slurm does not, or no longer, know the job.
  std::optional<JobStatus> query_job(const std::string& job) const;
  /// Returns the job's steps without the batch script.
  std::vector<StepStatus> query_steps(const std::string& job) const;
  std::vector<NodeStatus> query_nodes(const std::vector<std::string>& names) const;

  JobRequest query_request(const std::string& job) const;
  /// Returns all nodes of one partition or several, in any state.
  std::vector<std::string> query_partition(const std::string& partition) const;
  /// Returns the nodes of each switch that has nodes of its own; empty if Slurm knows no
  /// topology.
  std::vector<std::vector<std::string>> query_switches() const;
  /// Returns the file for the batch script's output.
  std::string query_log(const std::string& job) const;
  /// Returns the job's comment; empty if it has none.
  std::string query_comment(const std::string& job) const;
  void set_comment(const std::string& job, const std::string& comment) const;
  /// Ends the job and all of its steps, also the caller's.
  void cancel(const std::string& job) const;
  /// Puts the job back into the queue. Slurm ends all of its steps, also the caller's.
  void requeue(const std::string& job) const;
  /// Sets the nodes that Slurm must not give to this job, which must not run now.
  void exclude(const std::string& job, const std::vector<std::string>& nodes) const;
  /// Takes all nodes but these from a job that runs.
  void keep_nodes(const std::string& job, const std::vector<std::string>& nodes) const;
  /// Keeps a job that waits in the queue from starting for this many seconds. Returns
  /// false while Slurm is not ready to do so.
  bool start_later(const std::string& job, double seconds) const;
  /// Submits a script file and returns the new job's number.
  std::string submit(const std::string& script_path) const;

 private:
  CommandResult call(const std::vector<std::string>& words) const;
  CommandResult call_once(const std::vector<std::string>& words) const;
  std::string answer(const std::vector<std::string>& words) const;

  double deadline_seconds_;
  Runner runner_;
  SlurmPatience patience_;
};

/// Returns the command that kills a step ("123.4"). It takes seconds if a node of the
/// step is lost. Throws InputError for anything else than a step.
std::vector<std::string> kill_step_command(const std::string& step);

/// Reads a time that Slurm prints, in seconds: "1-02:03:04", "02:03:04", "03:04";
/// infinity for UNLIMITED and NOT_SET. Throws InputError.
double slurm_seconds(std::string_view text);

/// Reads what a person writes behind --time, in seconds: "30" (minutes), "30:15",
/// "8:00:00", "2-0", "2-12:30"; infinity for UNLIMITED. Throws InputError.
double time_limit_seconds(std::string_view text);

/// Throws InputError unless this is the number of a job or of an array's task: 123,
/// 123_4.
void check_job_id(std::string_view id);

}  // namespace longhaul::cluster
