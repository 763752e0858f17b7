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

#include "longhaul/run/run_past.h"

namespace longhaul::run {
class RunLock;
}

namespace longhaul::checkpoint {

struct SaverOptions {
  fs::path dir;  ///< directory with step_00000005/ ...; made when absent
  /// The marker of `dir`. A save writes it again where `dir` was removed, with all
  /// checkpoints, since the start; then tell() gets a line. With an empty `marker.run` no
  /// marker is written.
  run::CheckpointsMarker marker;
  int attempt = 1;    ///< number of the start (RunLock::attempt()); the same on all ranks
  std::string build;  ///< the program's version and commit, for the manifest
  Json layout;        ///< world size and mesh, recorded in the manifest for information
  const run::RunLock* lock =
      nullptr;                  ///< rank 0's lock, checked before the commit; may be null
  int64_t keep = 0;             ///< Retention::keep
  int64_t milestone_every = 0;  ///< Retention::milestone_every
  /// Returns whether a checkpoint must stay for now (Retention::held). Called by a thread
  /// of rank 0.
  std::function<bool(int64_t step)> held;
  bool read_back =
      true;  ///< whether each file is read from the device and checked after the commit
  int copy_threads = 1;  ///< threads that copy the state to host memory
  /// Called on rank 0 with the newest step, as soon as a checkpoint is committed (by the
  /// save's own thread) or withdrawn again; nothing: there is no checkpoint. A save does
  /// not fail because this function throws. May be empty.
  std::function<void(std::optional<int64_t> newest)> keeps;
  /// Called with a line for a person when training has waited for the storage longer than
  /// tell_after_seconds, then at twice the time, and so on. May be empty.
  std::function<void(const std::string&)> tell;
  double tell_after_seconds = 60.0;
  /// Called now and then by the thread that owns the communicator while it waits for a
  /// save. Throws where the save can never end, because the device that must copy the
  /// state waits for a rank that is lost. May be empty.
  std::function<void()> look;
};

/// What one rank hands over for a save.
struct Snapshot {
  int64_t step = 0;
  /// This rank's boxes. Over all ranks the boxes of one (kind, tensor) tile the tensor
  /// exactly; identical copies are allowed, and readers take the lowest rank's.
  std::vector<StateTensor> tensors;
  /// Keeps the tensors' bytes unchanged until the save has ended. Null: start() copies
  /// the bytes before it returns.
  std::shared_ptr<const void> owner;
  /// Waits until the tensors have their bytes, which a device may still be copying. Calls
  /// `look` meanwhile, which throws to end the wait. Called by the save's own thread
  /// where there is an owner. Empty: nothing has to be waited for.
  std::function<void(const std::function<void()>& look)> ready;
  Json state;                      ///< content of state.json; rank 0's is saved
  std::vector<CarriedFile> files;  ///< files in hf/; rank 0's are saved
};

/// How a save ended. All ranks have the same report, but for `mine`.
struct SaveReport {
  int64_t step = 0;
  fs::path path;         ///< the step directory
  uint64_t bytes = 0;    ///< bytes of all ranks and files
  double seconds = 0.0;  ///< from the call to the durable manifest
  double stall = 0.0;    ///< seconds that start() took on rank 0
  double waited = 0.0;   ///< seconds of `stall` spent waiting for the earlier save
  std::string error;     ///< empty where the save made a valid checkpoint
  ErrorKind kind = ErrorKind::Temporary;  ///< kind of the error
  bool mine = false;     ///< whether this rank's part of the save has failed
  std::string not_kept;  ///< on rank 0: why SaverOptions::keeps failed, if it did

  /// Throws the error, if there is one.
  void raise() const;
};

/// Saves checkpoints while training goes on. start() copies the state to host memory, and
/// a thread of each rank hashes and writes the copy. Rank 0's thread commits as soon as
/// all ranks' files are durable (commit_protocol.h), without any help of the training
/// threads. At most one save is under way; the next save waits for it. A save that fails
/// leaves older checkpoints untouched and removes what it wrote. All public functions are
/// called by the thread that owns the communicator. The caller
/// (train/save/run_checkpoints.h) decides when a run saves.
class BackgroundSaver {
 public:
  BackgroundSaver(SaverOptions options, comm::Communicator& world);
  /// Waits at most two minutes for a save under way, since a run that ends during a save
  /// has most often failed. A state that a device still copies may never arrive, so the
  /// wait for it ends after ten seconds. Does not communicate.
  ~BackgroundSaver();

  /// Makes the host memory for tensors like these, beside other work, so that the first
  /// save stalls no longer than later ones. Throws TemporaryError when there is no such
  /// memory.
  void prepare(const std::vector<StateTensor>& tensors);
  /// Begins a save of what `capture` returns. Where the earlier save has not ended, waits
  /// for that save before it calls `capture`, so that its memory can be used again;
  /// `before` receives its report. Throws on all ranks when the step directory cannot be
  /// made. Collective.
  void start(const std::function<Snapshot()>& capture, std::optional<SaveReport>& before);
  void start(const Snapshot& snapshot, std::optional<SaveReport>& before) {
    start([&] { return snapshot; }, before);
  }
  /// Returns the report of a save that has ended since the last call. Does not
  /// communicate while no save is under way. Collective.
  std::optional<SaveReport> poll();
  /// Waits for the save under way, and for deletions. Collective.
  std::optional<SaveReport> wait();
  bool under_way() const { return job_ != nullptr; }

  /// Notes a checkpoint of this directory that was read whole and found good: retention
  /// counts it.
  void trust(int64_t step) { verified_.insert(step); }
  /// Returns lines about what was deleted since the last call, and why something was not
  /// deleted. Call it on rank 0 only.
  std::vector<std::string> take_notes();

 private:
  struct Job;
  struct Cleaner;
  class LongWait;
  void cancel();
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

/// Saves one checkpoint, from the call to the durable manifest. Throws on all ranks when
/// the save fails. Collective.
SaveReport save_checkpoint(SaverOptions options, Snapshot snapshot,
                           comm::Communicator& world);

}  // namespace longhaul::checkpoint
