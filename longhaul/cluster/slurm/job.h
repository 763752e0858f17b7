#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/cluster/process/command.h"

namespace longhaul::cluster {

using Environment = std::function<const char*(const char*)>;

/// What the environment of a batch script or step says. It does not change when a node
/// dies: ask query_job for the nodes of now.
struct SlurmJob {
  std::string id;
  std::string name;
  std::vector<std::string> nodes;  ///< as allocated
  std::string here;                ///< this node's name in Slurm
  int restarts = 0;                ///< 0 in the first life
  std::string step;                ///< "123.4" in a step; empty in the batch script
};

/// Nothing outside of a Slurm job; InputError for values that no Slurm writes.
std::optional<SlurmJob> slurm_job(const Environment& environment);
std::optional<SlurmJob> slurm_job();

/// What Slurm says of a job now.
struct JobStatus {
  std::string state;               ///< RUNNING, PENDING, COMPLETING, TIMEOUT ...
  std::vector<std::string> nodes;  ///< that still belong to it
  std::string batch_host;          ///< may be a node that is lost
  double seconds_left = 0;         ///< infinity without a limit
  std::string reason;              ///< why it waits: BeginTime, Resources ...
};

struct NodeStatus {
  std::string name;
  std::string state;  ///< idle, allocated, mixed, down, drained ... without marks
  bool responds = true;
  /// Slurm gives it to no step any more, or soon will not.
  bool usable() const;
};

/// What a job asks Slurm for.
struct JobRequest {
  std::string partition;              ///< or several: "a,b"
  std::vector<std::string> excluded;  ///< not to be given to it
};

/// With a controller that is down or just starting.
struct SlurmPatience {
  double seconds = 0;
  double pause_seconds = 2;
  /// Once, when the waiting begins; may be empty.
  std::function<void(const std::string& line)> tell = {};
  std::function<void()> turn = {};  ///< before each further question; may be empty
};

struct StepStatus {
  std::string id;  ///< "123.4"
  std::string name;
  std::vector<std::string> nodes;
};

/// Slurm's programs, each run with a deadline. A program that fails or does not answer is
/// a TemporaryError with its last words: slurmctld may be starting again. Threads may
/// share one.
class SlurmClient {
 public:
  /// `runner` stands for run_command in tests.
  using Runner = std::function<CommandResult(const std::vector<std::string>& words,
                                             const CommandOptions& options)>;
  explicit SlurmClient(double deadline_seconds = 20, Runner runner = {});
  /// The same for a caller that has nothing better to do than to wait for a controller
  /// that does not answer: the allocation stays what it was meanwhile.
  SlurmClient waiting(SlurmPatience patience) const;

  /// Nothing when Slurm knows no such job (any more).
  std::optional<JobStatus> query_job(const std::string& job) const;
  /// The job's steps without the batch script.
  std::vector<StepStatus> query_steps(const std::string& job) const;
  std::vector<NodeStatus> query_nodes(const std::vector<std::string>& names) const;

  JobRequest query_request(const std::string& job) const;
  /// All nodes of a partition or several, in whatever state.
  std::vector<std::string> query_partition(const std::string& partition) const;
  /// The nodes of each switch that has nodes of its own; nothing where Slurm knows no
  /// topology.
  std::vector<std::vector<std::string>> query_switches() const;
  /// Where the batch script's output goes.
  std::string query_log(const std::string& job) const;
  /// Ends the job and all of its steps, the caller's too.
  void cancel(const std::string& job) const;
  /// Puts the job back into the queue: Slurm ends all of its steps, the caller's too.
  void requeue(const std::string& job) const;
  /// The nodes that Slurm is not to give to this job; it must not run now.
  void exclude(const std::string& job, const std::vector<std::string>& nodes) const;
  /// Keeps a job that waits in the queue from starting for so long; false while Slurm is
  /// not ready to.
  bool start_later(const std::string& job, double seconds) const;
  /// Submits a script file; the new job's number.
  std::string submit(const std::string& script_path) const;

 private:
  CommandResult call(const std::vector<std::string>& words) const;
  CommandResult call_once(const std::vector<std::string>& words) const;
  std::string answer(const std::vector<std::string>& words) const;

  double deadline_seconds_;
  Runner runner_;
  SlurmPatience patience_;
};

/// Kills a step ("123.4"). It takes seconds where a node of the step is lost. InputError.
std::vector<std::string> kill_step_command(const std::string& step);

/// "1-02:03:04", "02:03:04", "03:04"; infinity for UNLIMITED and NOT_SET. InputError.
double slurm_seconds(std::string_view text);

/// What a person writes behind --time, in seconds: "30" (minutes), "30:15", "8:00:00",
/// "2-0", "2-12:30"; infinity for UNLIMITED. InputError.
double time_limit_seconds(std::string_view text);

/// InputError unless it is the number of a job, or of an array's task: 123, 123_4.
void check_job_id(std::string_view id);

}  // namespace longhaul::cluster
