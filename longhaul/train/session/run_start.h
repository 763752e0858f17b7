#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"
#include "longhaul/run/start_record.h"

namespace longhaul::train {

/// One start of a run: the lock by which it alone writes the run's directory, its number,
/// the run's record of itself, and the checkpoint that it goes on from. Rank 0 keeps the
/// files; the other ranks' calls do nothing but where said.
class RunStart {
 public:
  /// Takes the run's directory, and makes it where absent. InputError when another
  /// process writes the run, TemporaryError where not all ranks see the same directory.
  /// Collective.
  RunStart(const fs::path& run_dir, comm::Communicator& world);

  /// 1 for the first start of the run, one more with each; on all ranks.
  int attempt() const { return attempt_; }
  /// Null but on rank 0.
  const RunLock* lock() const { return lock_ ? &*lock_ : nullptr; }

  /// The run's identity. Only rank 0 follows what take_over() and begin_anew() change.
  const std::string& run() const { return past_.run; }
  /// What the run knows of itself. Rank 0 only.
  const RunPast& past() const { return past_; }
  /// The run goes by the identity of the checkpoints that were found. Rank 0 only.
  void take_over(const std::string& run);
  /// What came before is no part of the run any more. Rank 0 only.
  void begin_anew();
  /// Its newest checkpoint is this one of `dir`; nothing: there is none any more. Rank 0
  /// only; while a save is under way, by the save's own thread only.
  void keeps(std::optional<int64_t> newest, const fs::path& dir);
  /// The start has its state, from wherever the settings said.
  void loaded();

  /// Starts from a checkpoint that did not get through one step, in a row.
  int failed_starts(const fs::path& step_dir) const;
  /// It begins from the checkpoint of this step.
  void begin(int64_t step);
  /// It has got through: a step is done, or it ends in order.
  void got_through();

  /// The checkpoint of this step was read whole and found good; on all ranks.
  void has_read(int64_t step) { read_ = step; }
  std::optional<int64_t> read_checkpoint() const { return read_; }

 private:
  fs::path run_dir_;
  std::optional<RunLock> lock_;
  std::optional<StartRecord> starts_;
  RunPast past_;
  int attempt_ = 1;
  std::optional<int64_t> read_;
};

}  // namespace longhaul::train
