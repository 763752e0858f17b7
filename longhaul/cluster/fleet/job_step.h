#pragma once

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/process/launcher_noise.h"
#include "longhaul/cluster/process/output_relay.h"
#include "longhaul/cluster/verdict/fault.h"

namespace longhaul::cluster {

/// A launcher (mpirun, srun) with its workers, as a child process without a shell. Its
/// error output goes to this process's error output without the noise (launcher_noise.h),
/// and is searched for ranks that were killed. Its output goes to this process's output,
/// whose reader may go (output_relay.h). The launcher ends when this process does.
/// All calls come from one thread.
class JobStep {
 public:
  /// Starts the command. `environment` has variables that are added to this process's
  /// environment or replace its variables. `input` is all that the command can read. It
  /// is at most what a pipe holds: 64 KiB, or 1 MiB if the kernel allows it. If `input`
  /// is empty, the command reads this process's input. `at_our_death` is the signal for
  /// the command when this process dies; srun ends its step after SIGTERM and leaves the
  /// step running after SIGKILL. Throws TemporaryError if the command cannot be started.
  static JobStep start(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment,
                       const std::string& input = {}, int at_our_death = SIGTERM);
  JobStep(JobStep&& other) noexcept;
  /// Kills the command and its process group if it has not ended.
  ~JobStep();

  int64_t pid() const { return pid_; }
  /// Copies what the command has written. Returns how the command ended, once it has.
  std::optional<LauncherEnd> poll();
  void signal(int number) const;

 private:
  JobStep() = default;
  void drain();
  void read_line(const std::string& line);
  void show(const std::vector<std::string>& lines);

  int64_t pid_ = -1;
  Descriptor errors_;
  std::string rest_;  ///< the start of a line that has not ended
  LauncherNoise noise_;
  OutputRelay output_;
  LauncherEnd end_;
  bool ended_ = false;
};

/// Returns {rank, where and how it ended} for a line of srun that says that ranks ended
/// by themselves with an error; nothing for other lines. The first of several ranks is
/// taken.
std::optional<std::pair<int, LauncherEnd::Exit>> failed_rank(const std::string& line);

/// Returns {rank or -1, signal} for a line of mpirun or srun that says that a rank was
/// killed; nothing for other lines.
std::optional<std::pair<int, int>> killed_rank(const std::string& line);

}  // namespace longhaul::cluster
