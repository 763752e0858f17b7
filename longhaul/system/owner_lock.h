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

namespace longhaul::system {

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
  // The name of the supervisor and the number of its start (see OwnerLockOptions).
  std::string supervisor;
  int64_t start = 0;
};

struct OwnerLockOptions {
  /// A holder on another host is taken for dead when its lease is older than this.
  double lease_seconds = 60.0;
  double renew_seconds = 10.0;
  /// Within how many seconds the holder must show that it is at work (check(), heart())
  /// for its lease to be renewed. The thread that renews the lease goes on even when the
  /// holder's other threads hang.
  double idle_seconds = std::numeric_limits<double>::infinity();
  /// Whether the age of a lease is measured by the file system's clock, for which a file
  /// is made and removed. Otherwise it is measured by this machine's clock, and look()
  /// writes nothing.
  bool probe = true;
  /// The supervisor that makes this start, empty for none. It makes a start only after
  /// the one before has ended or was given up. So the next start takes the lock over at
  /// once, on any host.
  std::string supervisor = {};
  int64_t start = 0;
  /// The attempt's number is at least this, for callers that know of attempts which no
  /// lock file tells of.
  int least_attempt = 1;
  /// If this is given, acquire() watches a holder that can be judged by its lease alone,
  /// at most until the lease has run out. Only a holder that renews the lease during the
  /// watch keeps the lock. The function is called once, before the watch.
  std::function<void(const std::string& line)> on_watch = {};
  /// Whether a living holder of the same Slurm job is waited for on this machine too, not
  /// only on another one.
  bool waits_for_own_job = false;
  // Messages use these words: "[area] DIR: another process OCCUPATION (...); stop it, or
  // ADVICE".
  std::string area = "run lock";
  std::string object = "the run";
  std::string occupation = "writes this run";
  std::string advice = "give this one a run.dir of its own";
};

/// What is known about a lock without taking it.
struct LockState {
  LockHolder holder;
  bool alive = false;
  std::string reason;  ///< "its process is gone"
};

/// Lets one process at a time write to a directory. A file names the holder, and a thread
/// renews the holder's lease (the file's modification time). Flock is not used, since
/// cluster file systems may not carry it across hosts. A dead holder is taken over: on
/// the same host at once, elsewhere when its lease has run out (a restart of the same job
/// waits for that). A holder that was cut off and comes back finds another attempt in the
/// file when it wants to commit.
class OwnerLock {
 public:
  /// Takes the lock; makes the file's directory if absent. Throws InputError with the
  /// holder's job, host and process if the holder is alive. notes() has lines for the
  /// log, about a takeover.
  static OwnerLock acquire(const fs::path& file, const OwnerLockOptions& options = {});
  /// Returns what is known about a lock; nothing if there is no such file.
  static std::optional<LockState> look(const fs::path& file,
                                       const OwnerLockOptions& options = {});
  OwnerLock(OwnerLock&& other) noexcept;
  /// Releases the lock, so that the next start need not judge whether this one lives.
  ~OwnerLock();

  /// Returns 1 for the first start, and one more for each start after it.
  int attempt() const { return holder_.attempt; }
  const LockHolder& holder() const { return holder_; }
  /// Says whether the attempt counts, as it does at first. An attempt that does not count
  /// leaves its number to the next one, and its release writes the holder before it into
  /// the lock.
  void set_counts(bool counts) { counts_ = counts; }
  const std::vector<std::string>& notes() const { return notes_; }
  /// Throws Error (Internal: no retry by this process) when another attempt has the lock,
  /// or when the lock's file is not there.
  void check() const;
  /// Returns whether the lock's file is not there: the directory was removed or renamed,
  /// or this machine does not see it any more. If another attempt has taken the lock
  /// over, its file is there. Throws TemporaryError if that cannot be found out now.
  bool is_gone() const;
  /// Returns a function that says with each call that the holder is at work. It may
  /// outlive the lock, and any thread may call it.
  std::function<void()> heart() const;
  void release() noexcept;

 private:
  struct Lease;  // the open file and the renewing thread
  OwnerLock() = default;
  /// Returns what errno says about a call with the lock's file.
  Failure failure_at(int error, const char* call) const;
  bool try_take(const LockHolder& mine, const std::optional<LockHolder>& dead,
                const OwnerLockOptions& options);
  void start_lease(const OwnerLockOptions& options);
  fs::path path_;
  std::string area_;
  std::string object_;
  LockHolder holder_;
  std::optional<LockHolder> before_;
  bool counts_ = true;
  std::vector<std::string> notes_;
  std::unique_ptr<Lease> lease_;
};

}  // namespace longhaul::system
