#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::checkpoint {

/// Who holds a run directory.
struct LockHolder {
  int attempt = 0;    ///< counts the starts of this run
  std::string token;  ///< unique to this start
  std::string job;    ///< Slurm job id, or empty
  std::string host;
  std::string boot;  ///< boot id and pid namespace: where `process` has a meaning
  int64_t process = 0;
  int64_t process_start = 0;  ///< clock ticks since boot (/proc/PID/stat field 22)
  std::string started_at;
  bool released = false;
};

struct RunLockOptions {
  /// A holder on another host is taken for dead when its lease is older than this.
  double lease_seconds = 60.0;
  double renew_seconds = 10.0;
};

/// One writer at a time for a run directory. The file run_dir/run.lock names the holder;
/// a thread renews its lease (the file's modification time). It does not rest on flock,
/// which cluster file systems may not carry across hosts. A holder that is dead is taken
/// over: on the same host at once, elsewhere when its lease has run out (a restart of the
/// same job waits for that). A holder that was cut off and comes back finds another
/// attempt in the file when it wants to commit. Rank 0 only.
class RunLock {
 public:
  /// Makes run_dir where absent. InputError with the holder's job, host and process when
  /// it is alive. Lines for the log (a takeover) are in notes().
  static RunLock acquire(const fs::path& run_dir, const RunLockOptions& options = {});
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  /// Releases: the next start need not judge whether this one lives.
  ~RunLock();

  /// 1 for the first start of a run, one more with each start.
  int attempt() const { return holder_.attempt; }
  const LockHolder& holder() const { return holder_; }
  const std::vector<std::string>& notes() const { return notes_; }
  /// Throws Error (Internal: no retry by this process) when another attempt has the run.
  void check() const;
  void release() noexcept;

 private:
  struct Lease;  // the open file and the renewing thread
  RunLock() = default;
  bool try_take(const LockHolder& mine, const std::optional<LockHolder>& dead);
  void start_lease(double renew_seconds);
  fs::path path_;
  LockHolder holder_;
  std::vector<std::string> notes_;
  std::unique_ptr<Lease> lease_;
};

}  // namespace longhaul::checkpoint
