#pragma once

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/cluster/process/launcher_noise.h"
#include "longhaul/cluster/verdict/fault.h"

namespace longhaul::cluster {

/// A launcher (mpirun, srun) with its workers: started, read, ended. What it writes to
/// its error output goes to ours, without the noise (launcher_noise.h), and is read for
/// what it says of ranks that were killed.
/// It ends when this process does. One thread; no shell.
class JobStep {
 public:
  /// `environment` is set over ours. `input`, at most 4 KiB, is all that it can read;
  /// without one it has our input. `at_our_death`: the signal that it gets when this
  /// process dies; srun ends its step after SIGTERM and leaves it after SIGKILL.
  /// TemporaryError where it cannot be started.
  static JobStep start(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment,
                       const std::string& input = {}, int at_our_death = SIGTERM);
  JobStep(JobStep&& other) noexcept;
  JobStep& operator=(JobStep&&) = delete;
  /// Kills a launcher that is still there.
  ~JobStep();

  int64_t pid() const { return pid_; }
  /// Copies what was written; how it ended, once it has.
  std::optional<LauncherEnd> poll();
  void signal(int number) const;

 private:
  JobStep() = default;
  void drain();
  void read_line(const std::string& line);
  void show(const std::vector<std::string>& lines);

  int64_t pid_ = -1;
  int errors_ = -1;
  std::string rest_;  ///< of a line that has not ended
  LauncherNoise noise_;
  LauncherEnd end_;
  bool ended_ = false;
};

/// What a line of mpirun's or srun's says of a killed rank: {rank or -1, signal}.
std::optional<std::pair<int, int>> killed_rank(const std::string& line);

}  // namespace longhaul::cluster
