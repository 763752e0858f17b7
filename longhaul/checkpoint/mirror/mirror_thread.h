#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/checkpoint/mirror/mirror_exports.h"
#include "longhaul/checkpoint/mirror/mirror_listing.h"
#include "longhaul/checkpoint/mirror/mirror_store.h"
#include "longhaul/checkpoint/mirror/mirror_writer.h"

namespace longhaul::run {
class RunLock;
}

namespace longhaul::checkpoint {

struct MirrorOptions {
  fs::path checkpoints;  ///< the directory of step_00000005/ ..., which all ranks see
  int attempt = 1;
  int rank = 0;
  int ranks = 1;
  int64_t keep = 0;             ///< newest checkpoints that stay in the mirror; 0: all
  int64_t milestone_every = 0;  ///< Retention::milestone_every
  MirrorClaim claim;            ///< rank 0's; the thread notes the names
  /// The run's directory; rank 0 only. Its files `run_files`, and what MirrorExports
  /// finds in it, are copied to MIRROR/run/.
  fs::path run_dir;
  std::vector<std::string> run_files;
  const run::RunLock* lock = nullptr;  ///< rank 0's, checked before the manifest
  /// `first_wait` is the number of seconds until a step is tried again that failed for a
  /// passing reason. The wait doubles with each try, up to `longest_wait`.
  double first_wait = 30.0;
  double longest_wait = 600.0;
};

/// What rank 0's thread has done.
struct MirrorReport {
  enum class Kind {
    Done,    ///< the step is in the mirror
    Behind,  ///< the step was left out, because a newer one came
    Failed,  ///< the step is not in the mirror; `message` says why
    Note,    ///< a line for a person: `message`
  };
  Kind kind = Kind::Done;
  int64_t step = 0;
  uint64_t bytes = 0;
  double seconds = 0.0;
  int64_t retries = 0;
  double again = 0.0;  ///< seconds until the step is tried again; 0: it is not
  std::string message = {};
};

/// Copies committed checkpoints to a mirror while training goes on. Each rank has a
/// MirrorThread, which sends the rank's own files. The one of rank 0 chooses the step and
/// tells the other ranks by a file beside the checkpoints, so no rank waits for another
/// in a collective. Where several steps come while one is under way, only the newest
/// waits. A step that fails for a passing reason is tried again until a newer one is
/// committed. The functions return at once, except where said, and are called by the
/// training thread.
class MirrorThread {
 public:
  /// Seconds for which rank 0 waits for the other ranks' files of a step.
  static constexpr double kFilesSeconds = 3600.0;

  MirrorThread(MirrorOptions options, std::unique_ptr<MirrorStore> store);
  /// Stops, whatever is under way.
  ~MirrorThread();

  /// Must be called by all ranks when a step was committed and found good. With
  /// `if_absent` rank 0 first looks whether the mirror has the step already.
  void committed(int64_t step, bool if_absent = false);
  /// Notes that the run has gone back to a step: the mirror's checkpoints of later steps
  /// do not belong to the run any more. Does nothing on other ranks than 0.
  void went_back(int64_t step);
  /// Asks for a copy of the run's files. Does nothing on other ranks than 0.
  void send_run_files();

  /// Must be called when the run ends: from now on no step is tried again.
  void try_no_more();

  /// Returns whether this rank is sending files or has files to send. A step that waits
  /// to be tried again does not count.
  bool busy() const;
  /// Returns whether exports and reports of the run are being copied, for which busy()
  /// does not wait; false on other ranks than 0.
  bool copies_exports() const { return exports_ && exports_->busy(); }
  /// Returns a number that grows with each file that was sent, to show progress.
  uint64_t come_to() const { return come_to_; }
  /// Returns whether a local checkpoint must stay because the mirror lacks it: it is
  /// being sent, waits to be sent, or is the newest one. Any thread may call it, on rank
  /// 0.
  bool holds(int64_t step) const;
  /// Returns on rank 0 the newest step that this start has seen in the mirror.
  std::optional<int64_t> newest() const;
  /// Returns what has happened since the last call; nothing on other ranks than 0.
  std::vector<MirrorReport> take_reports();
  /// Ends the thread. Requests under way fail.
  void stop();

 private:
  struct Wanted {
    int64_t step = 0;
    bool if_absent = false;
  };
  /// What rank 0 tells the other ranks, by a file, about the step that it mirrors.
  struct Turn {
    int64_t serial = 0;
    int64_t step = 0;
    bool open = false;
    bool again = false;  ///< with !open: the step is tried again later
  };
  /// A step that waits to be tried again.
  struct Retry {
    Wanted wanted;
    double wait = 0.0;  ///< seconds
    std::chrono::steady_clock::time_point at;
  };

  enum class Name { New, Kept };

  void run();
  void lead();
  void follow();
  void mirror(const Wanted& wanted);
  MirrorReport mirror_step(const Wanted& wanted);
  double try_later(const Wanted& wanted);
  void claim(Name name);
  MirrorListing& known();
  void go_back(int64_t step);
  void copy_run_files();
  void tell_turn(const Turn& turn);
  std::optional<Turn> read_turn() const;
  void look_for_failures() const;
  void wait_for_ranks(const std::function<void()>& look);
  void take_turn(const Turn& turn);
  void report(MirrorReport report);

  MirrorOptions options_;
  std::unique_ptr<MirrorStore> store_;
  bool claimed_ = false;  ///< whether the last look found the mirror to be this start's
  /// What rank 0 knows of the mirror while it mirrors a step. Each step begins with a new
  /// listing.
  std::optional<MirrorListing> known_;
  int64_t serial_ = 0;  ///< of the newest turn that was told or seen
  std::atomic<bool> stopped_ = false;
  std::atomic<uint64_t> come_to_ = 0;

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::optional<Wanted> queued_;
  std::optional<int64_t> under_way_;
  std::optional<Retry> retry_;
  bool tries_no_more_ = false;
  std::optional<int64_t> back_to_;
  bool run_files_wanted_ = false;
  bool at_work_ = false;
  int64_t committed_ = -1;  ///< newest step that was committed
  // The members below are used on ranks other than 0.
  int64_t served_ = -1;       ///< newest step with nothing left to do
  bool comes_again_ = false;  ///< rank 0 tries the newest turn's step again later
  std::optional<int64_t> newest_;
  std::vector<MirrorReport> reports_;
  std::unique_ptr<MirrorExports> exports_;  ///< null where there are none to copy
  std::thread thread_;
};

}  // namespace longhaul::checkpoint
