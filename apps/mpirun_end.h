#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace longhaul::apps {

/// Finds out why mpirun sends SIGTERM, which SIGKILL follows one second later: because a
/// rank of this machine is gone, or because somebody has sent mpirun a signal. In the
/// latter case the ranks have that second to save. Where it is too short, this process
/// says so, with the last words of longhaul/system/signals.h, and ends just before it is
/// killed.
class MpirunEnd {
 public:
  /// Call the constructor when all ranks have started. `say` gets the line, on a thread
  /// of its own. Only one rank, which speaks for all, has a `say`; on the others it is
  /// empty.
  explicit MpirunEnd(std::function<void(const std::string& line)> say);
  ~MpirunEnd();
  MpirunEnd(const MpirunEnd&) = delete;
  MpirunEnd& operator=(const MpirunEnd&) = delete;

  /// Returns, for CommOptions::job_ends, why a wait cannot end; empty while it can.
  std::string reason() const;

 private:
  void watch();
  bool one_is_gone() const;

  std::function<void(const std::string&)> say_;
  std::vector<int> others_;  ///< processes of the same mpirun on this machine
  std::atomic<bool> rank_died_ = false;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace longhaul::apps
