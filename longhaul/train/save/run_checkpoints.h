#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/mirror/mirror_thread.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/session/session.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/start/run_start.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Returns the options that every checkpoint of the run has in common: directory,
/// attempt, build and layout.
checkpoint::SaverOptions saver_options(const session::Session& session,
                                       const fs::path& dir, int attempt);

/// Decides how the checkpoints of a start are saved: beside training or not, and again
/// after the next step where a save fails, up to kTries times in a row. Logs the outcome
/// of each save, and at the end of the start what is saved and what is not. The work of a
/// save is checkpoint::BackgroundSaver's. Where there is a mirror
/// (checkpoint/mirror/mirror_thread.h), hands it what is saved, and tells what it does.
class RunCheckpoints {
 public:
  static constexpr int kTries = 3;
  /// Seconds for which the end of a run waits until the mirror has its last checkpoint.
  /// Where a signal ends the run, the wait is shorter, since whoever sent the signal may
  /// not wait longer.
  static constexpr double kMirrorEndSeconds = 600.0;
  static constexpr double kMirrorSignalSeconds = 20.0;
  static constexpr double kRunFilesSeconds = 60.0;

  /// Makes the directory of checkpoints, marks it as the run's, and checks that every
  /// rank may write there and sees the same directory, so that faults are told before
  /// hours of training. `step` is where the start begins. Collective.
  RunCheckpoints(const TrainingSession& session, RunStart& start, RunLog& log,
                 int64_t step);

  /// Makes the host memory that saves of tensors like these need.
  void prepare(const std::vector<checkpoint::StateTensor>& tensors) {
    saver_.prepare(tensors);
  }
  /// Waits for the checkpoint before, and begins to write one of the state that `capture`
  /// returns (StateCapture). With [checkpoint] async = false, and for the last checkpoint
  /// (`ends`), waits until this one is written; then the state is not copied. Collective.
  void save(const History& history, const std::function<checkpoint::Snapshot()>& capture,
            bool ends);
  /// Saves a state as save() does, but into the directory `dir`, and waits for the save;
  /// neither the run's record nor the mirror learns of it. Throws on all ranks if it
  /// fails. Collective.
  checkpoint::SaveReport save_apart(const session::Session& session, const fs::path& dir,
                                    const History& history,
                                    checkpoint::Snapshot snapshot) const;
  /// Tells the outcome of a save that has ended; must be called after every step. Returns
  /// true when the last save failed and is to be tried again; throws when it was tried
  /// often enough. Collective.
  bool settle();
  /// Waits until the checkpoint under way is durable; throws when it could not be
  /// written. Waits for its mirror then, kMirrorEndSeconds at most, and warns where it is
  /// not done by then. Collective.
  void finish();
  /// Waits as finish() does, but only tells of a save that failed: the next settle()
  /// decides about it. Collective.
  void drain();

  /// Copies to the mirror what the run has written at its end, and exports where no
  /// signal ends the run, for kRunFilesSeconds at most, and ends the mirroring. Does not
  /// communicate.
  void end_mirror();

  /// Notes the newest step that was done, which a sudden end of the run would lose.
  void reached(int64_t step);
  /// Looks on the disk for the newest checkpoint; must be called after checkpoints were
  /// set aside.
  void find_newest();
  /// Returns on rank 0 whether the newest checkpoint is of this step; elsewhere false.
  bool has_saved(int64_t step) const { return newest_ == step; }
  /// Returns on rank 0 the seconds of this start's longest save so far; elsewhere 0.
  double longest() const { return longest_; }
  /// Says in words whether this step is saved, or which checkpoint is the newest; never
  /// claims more than is true.
  std::string words_at(int64_t step) const;

 private:
  /// Gives a snapshot what a checkpoint holds besides tensors. Where training waits for
  /// the save (`wait`), the state is not copied.
  checkpoint::Snapshot completed(checkpoint::Snapshot snapshot, const History& history,
                                 bool wait) const;
  void tell(const checkpoint::SaveReport& report);
  void tell_failure(const checkpoint::SaveReport& report);
  /// Throws the report's error. A supervisor gets the error from the rank that has
  /// failed.
  void raise(const checkpoint::SaveReport& report);
  void tell_deletions();
  void tell_mirror();
  /// Waits for the mirror as finish() says. Collective.
  void wait_for_mirror();
  void set_last_words() const;
  /// Begins to mirror where the settings name a mirror. The newest checkpoint is copied
  /// first. `step` is where the start begins. Collective.
  void open_mirror(const session::Session& session, int64_t step);
  /// Says that the mirror lacks the newest checkpoint.
  void warn_of_mirror(double seconds);

  RunLog& log_;
  RunStart& start_;
  RunConfig config_;
  std::shared_ptr<comm::Communicator> world_;
  std::vector<checkpoint::CarriedFile> carried_;
  /// Null where there is no mirror. The saver's thread uses the mirror, so it is made
  /// before the saver.
  std::unique_ptr<checkpoint::MirrorThread> mirror_;
  run::CheckpointsMarker marker_;  ///< rank 0's
  checkpoint::BackgroundSaver saver_;
  int failed_ = 0;        ///< failed saves in a row
  double longest_ = 0.0;  ///< seconds of the longest save
  checkpoint::SaveReport last_failure_;
  int64_t reached_;
  std::optional<int64_t>
      newest_;  ///< step of the checkpoint that a start would go on from
};

}  // namespace longhaul::train
