#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/log/run_log.h"
#include "longhaul/train/session/run_start.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// What every checkpoint of the run says of who wrote it, into `dir`.
checkpoint::SaverOptions saver_options(const Session& session, const fs::path& dir,
                                       int attempt);

/// The checkpoints that a start writes: one that fails is tried again after the next
/// step, as often as kTries in a row. What becomes of each is logged, and so is, at any
/// end, what is saved and what is not.
class RunCheckpoints {
 public:
  static constexpr int kTries = 3;

  /// Makes the directory of checkpoints, marks it as the run's and asks whether it may be
  /// written and all ranks see the same one, so that what is wrong with it is said before
  /// hours of training. `step`: where the start begins.
  /// Collective.
  RunCheckpoints(const Session& session, RunStart& start, RunLog& log, int64_t step);

  /// Makes the host memory that saves of tensors like these need.
  void prepare(const std::vector<checkpoint::StateTensor>& tensors) {
    saver_.prepare(tensors);
  }
  /// Begins to write a checkpoint of a captured state (StateCapture), and waits for the
  /// checkpoint before it. With [checkpoint] async = false, and for the last checkpoint
  /// (`ends`), waits until this one is written; then nothing is copied. Collective.
  void save(const History& history, checkpoint::Snapshot snapshot, bool ends);
  /// After every step: says what has become of a checkpoint under way. True when the last
  /// one failed and is to be tried again; throws when that has been tried often enough.
  /// Collective.
  bool settle();
  /// Waits until the checkpoint under way is durable; throws when it could not be
  /// written. Collective.
  void finish();
  /// The same, but that a save that failed is only told and left to the next settle().
  /// Collective.
  void drain();

  /// The newest step that was done: what an end at once would lose.
  void reached(int64_t step);
  /// Looks on the disk for what a stop would leave: after checkpoints were set aside.
  void find_newest();
  /// What a stop at this step leaves, in words: never more than is true.
  std::string words_at(int64_t step) const;

 private:
  void tell(const checkpoint::SaveReport& report);
  void tell_failure(const checkpoint::SaveReport& report);
  void tell_deletions();
  void set_last_words() const;

  RunLog& log_;
  RunStart& start_;
  RunConfig config_;
  std::vector<checkpoint::CarriedFile> carried_;
  checkpoint::BackgroundSaver saver_;
  int failed_ = 0;        ///< in a row
  double longest_ = 0.0;  ///< seconds
  checkpoint::SaveReport last_failure_;
  int64_t reached_;
  std::optional<int64_t> newest_;  ///< step of what a start would go on from
};

}  // namespace longhaul::train
