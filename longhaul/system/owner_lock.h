#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/failure.h"
#include "longhaul/base/file.h"

namespace longhaul {

/// Who holds a lock.
struct LockHolder {
  int attempt = 0;    ///< counts the times it was taken
  std::string token;  ///< unique to this start
  std::string job;    ///< Slurm job id, or empty
  std::string host;
  std::string boot;  ///< boot id and pid namespace: where `process` has a meaning
  int64_t process = 0;
  int64_t process_start = 0;  ///< clock ticks since boot (/proc/PID/stat field 22)
  std::string started_at;
  bool released = false;
  // Which of the starts of one supervisor this is; see OwnerLockOptions.
  std::string supervisor;
  int64_t start = 0;
};

struct OwnerLockOptions {
  /// A holder on another host is taken for dead when its lease is older than this.
  double lease_seconds = 60.0;
  double renew_seconds = 10.0;
  /// The lease is renewed only while its holder shows within that time that it is at work
  /// (check(), heart()): a thread that renews it says nothing of one that hangs.
  double idle_seconds = std::numeric_limits<double>::infinity();
  /// The age of a lease is told by the file system's clock, for which a file is made and
  /// removed. False: by this machine's, and look() writes nothing.
  bool probe = true;
  /// Starts that one supervisor makes one after the other, each when it has ended, or
  /// given up, the one before: the next takes over at once, on whatever host. Empty: no
  /// supervisor.
  std::string supervisor = {};
  int64_t start = 0;
  /// Given: a holder that is judged by its lease alone is watched, at most until the
  /// lease has run out, and refused only when it renews it. Told of that once, before.
  std::function<void(const std::string& line)> on_watch = {};
  /// A living holder of the same Slurm job is waited for on this machine too, not only on
  /// another one.
  bool waits_for_own_job = false;
  // For the messages: "[area] DIR: another process OCCUPATION (...); stop it, or ADVICE".
  std::string area = "run lock";
  std::string object = "the run";
  std::string occupation = "writes this run";
  std::string advice = "give this one a run.dir of its own";
};

/// What is known of a lock without taking it.
struct LockState {
  LockHolder holder;
  bool alive = false;
  std::string reason;  ///< "its process is gone"
};

/// One writer at a time for a directory. A file names the holder; a thread renews its
/// lease (the file's modification time). It does not rest on flock, which cluster file
/// systems may not carry across hosts. A holder that is dead is taken over: on the same
/// host at once, elsewhere when its lease has run out (a restart of the same job waits
/// for that). A holder that was cut off and comes back finds another attempt in the file
/// when it wants to commit.
class OwnerLock {
 public:
  /// Makes the file's directory where absent. InputError with the holder's job, host and
  /// process when it is alive. Lines for the log (a takeover) are in notes().
  static OwnerLock acquire(const fs::path& file, const OwnerLockOptions& options = {});
  /// Nothing where there is no such file.
  static std::optional<LockState> look(const fs::path& file,
                                       const OwnerLockOptions& options = {});
  OwnerLock(OwnerLock&& other) noexcept;
  OwnerLock& operator=(OwnerLock&&) = delete;
  /// Releases: the next start need not judge whether this one lives.
  ~OwnerLock();

  /// 1 for the first start, one more with each.
  int attempt() const { return holder_.attempt; }
  const LockHolder& holder() const { return holder_; }
  const std::vector<std::string>& notes() const { return notes_; }
  /// Throws Error (Internal: no retry by this process) when another attempt has it.
  void check() const;
  /// Each call says that the holder is at work. It may outlive the lock; any thread.
  std::function<void()> heart() const;
  void release() noexcept;

 private:
  struct Lease;  // the open file and the renewing thread
  OwnerLock() = default;
  /// What errno says of a call with the lock's file.
  Failure failure_at(int error, const char* call) const;
  bool try_take(const LockHolder& mine, const std::optional<LockHolder>& dead,
                const OwnerLockOptions& options);
  void start_lease(const OwnerLockOptions& options);
  fs::path path_;
  std::string area_;
  std::string object_;
  LockHolder holder_;
  std::vector<std::string> notes_;
  std::unique_ptr<Lease> lease_;
};

}  // namespace longhaul
