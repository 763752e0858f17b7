#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/checkpoint/write/staging.h"
#include "longhaul/comm/communicator.h"

namespace longhaul {
class RunLock;
}

namespace longhaul::checkpoint {

struct SaverOptions {
  fs::path dir;  ///< holds step_00000005/ ...; made when absent
  /// The run's identity: a directory that has lost its marker since the start, and so all
  /// of its checkpoints, gets it again, and tell() a line. Empty: there is no marker.
  std::string run;
  int attempt = 1;                ///< RunLock::attempt(); the same on all ranks
  std::string build;              ///< the writer's version and commit, for the manifest
  Json layout;                    ///< world size and mesh, for the manifest; informative
  const RunLock* lock = nullptr;  ///< rank 0's; checked before the commit. May be null.
  int64_t keep = 0;               ///< see Retention
  int64_t milestone_every = 0;    ///< see Retention
  bool read_back =
      true;              ///< read each file from the device and check it after the commit
  int copy_threads = 1;  ///< threads that copy the state to host staging
  /// Rank 0: told which step is the newest, as soon as a checkpoint is committed (by the
  /// save's own thread) or withdrawn again; nothing: there is none. What it throws fails
  /// no save. May be empty.
  std::function<void(std::optional<int64_t> newest)> keeps;
  /// A line for a person when training waits for the storage longer than this; then at
  /// twice the time, and so on. May be empty.
  std::function<void(const std::string&)> tell;
  double tell_after_seconds = 60.0;
};

/// What one rank hands over for a save.
struct Snapshot {
  int64_t step = 0;
  /// This rank's boxes; over all ranks the boxes of one (kind, tensor) tile it exactly
  /// (identical copies are allowed, the lowest rank's is kept by readers).
  std::vector<StateTensor> tensors;
  /// Keeps the tensors' bytes, unchanged, until the save has ended. Null: they are copied
  /// before start() returns.
  std::shared_ptr<const void> owner;
  /// With an owner: returns when the bytes are there, as a device may still be copying
  /// them. Called by the save's own thread. Empty: they are.
  std::function<void()> ready;
  Json state;                      ///< state.json; rank 0's counts
  std::vector<CarriedFile> files;  ///< hf/; rank 0's counts
};

/// How a save ended. The same on all ranks.
struct SaveReport {
  int64_t step = 0;
  fs::path path;         ///< the step directory
  uint64_t bytes = 0;    ///< of all ranks and files
  double seconds = 0.0;  ///< from the call to the durable manifest
  double stall = 0.0;    ///< seconds that start() took: rank 0's
  double waited = 0.0;   ///< of them spent waiting for the save before it
  std::string error;     ///< empty: it is a valid checkpoint
  ErrorKind kind = ErrorKind::Temporary;  ///< of the error
  std::string not_kept;  ///< rank 0: why SaverOptions::keeps failed, if it did

  /// Throws the error, if there is one.
  void raise() const;
};

/// Saves checkpoints while training goes on. start() copies the state to host memory; a
/// thread of each rank hashes and writes it; rank 0's thread commits as soon as all
/// ranks' files are durable (commit_protocol.h), without any help of the training
/// threads. At most one save is under way: the next one waits for it. A save that fails
/// leaves older checkpoints untouched and removes what it wrote. All public functions are
/// called by the thread that owns the communicator.
class BackgroundSaver {
 public:
  BackgroundSaver(SaverOptions options, comm::Communicator& world);
  /// Waits at most two minutes for a save under way, since what ends here is most often a
  /// run that failed later; no communication.
  ~BackgroundSaver();

  /// Makes the host staging for tensors like these, beside other work: the first save
  /// then stalls no longer than the later ones. TemporaryError when there is no such
  /// memory.
  void prepare(const std::vector<StateTensor>& tensors);
  /// Begins a save. Collective. Where the one before is not over, waits for it: `before`
  /// receives its report. Throws on all ranks when the step directory cannot be made.
  void start(Snapshot snapshot, std::optional<SaveReport>& before);
  /// The report of a save that has ended since the last call. Collective; free of
  /// communication while none is under way.
  std::optional<SaveReport> poll();
  /// Waits for the save under way, and for deletions. Collective.
  std::optional<SaveReport> wait();
  bool under_way() const { return job_ != nullptr; }

  /// A checkpoint of this directory that was read whole and found good: retention counts
  /// it.
  void trust(int64_t step) { verified_.insert(step); }
  /// Rank 0: what was deleted, and why not, since the last call.
  std::vector<std::string> take_notes();

 private:
  struct Job;
  struct Cleaner;
  class LongWait;
  std::optional<SaveReport> settle(bool failed);
  void start_cleaning();
  // Collective.
  SaveReport wait_for_job(LongWait& told);
  void wait_for_cleaner(LongWait& told);
  bool cleaning_somewhere();

  SaverOptions options_;
  comm::Communicator& world_;
  Staging staging_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Cleaner> cleaner_;
  std::set<int64_t> verified_;
  int64_t deletion_waits_ = 0;
};

/// One save from call to durable manifest. Collective; throws on all ranks when it fails.
SaveReport save_checkpoint(SaverOptions options, Snapshot snapshot,
                           comm::Communicator& world);

}  // namespace longhaul::checkpoint
