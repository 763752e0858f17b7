#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"
#include "longhaul/run/start_record.h"

namespace longhaul::train {

/// What the directory of checkpoints and the mirror say of a run that has a mirror.
struct MirrorPast {
  std::string run;  ///< its identity, by the mirror; empty: not known
  int attempt = 0;  ///< the highest number of a start in either place
};

/// One start of a run. It holds the lock by which it alone writes the run's directory,
/// the number of the start, the run's record of itself, and the step of the checkpoint
/// that the start goes on from. Rank 0 keeps the files; on other ranks the calls do
/// nothing, except where said.
class RunStart {
 public:
  /// Takes the run's directory, and makes it where it is absent. Throws InputError when
  /// another process writes the run, and TemporaryError where not all ranks see the same
  /// directory. A run that is new here goes on as the run of `mirror`. `expected` is a
  /// run that an earlier start of the same job has trained; empty: none is known.
  /// Collective.
  RunStart(const fs::path& run_dir, comm::Communicator& world,
           const MirrorPast& mirror = {}, std::string expected = {});

  /// Returns the number of this start, counted from 1. Works on all ranks.
  int attempt() const { return attempt_; }
  /// Notes that this start's number is used, for instance in the name of a file. A number
  /// that was not used goes to the next start.
  void use_attempt() {
    if (lock_) lock_->set_counts(true);
  }
  /// Returns the run's lock; null on other ranks than 0.
  const run::RunLock* lock() const { return lock_ ? &*lock_ : nullptr; }

  /// Returns the run's identity. Only rank 0 sees the changes of take_over() and
  /// begin_anew().
  const std::string& run() const { return past_.run; }
  /// Throws TemporaryError where this start would begin another run than `expected`.
  /// Collective.
  void prove_expected(comm::Communicator& world) const;
  /// Returns whether begin_anew() was called.
  bool has_begun_anew() const { return begun_anew_; }
  /// Returns the run's record of itself. Call it on rank 0 only.
  const run::RunPast& past() const { return past_; }
  /// Gives the run the identity of the checkpoints that were found. Call it on rank 0
  /// only.
  void take_over(const std::string& run);
  /// Gives the run a new identity: what came before is no part of the run any more. Call
  /// it on rank 0 only.
  void begin_anew();
  /// Notes the name of the writer of the mirror from which the run goes on. Call it on
  /// rank 0 only.
  void go_on_from(const std::string& name) { goes_on_from_ = name; }
  const std::string& goes_on_from() const { return goes_on_from_; }
  /// Records the run's newest checkpoint, which lies in `dir`; nothing: there is no
  /// checkpoint any more. Call it on rank 0 only. While a save is under way, only the
  /// save's own thread may call it.
  void keeps(std::optional<int64_t> newest, const fs::path& dir);
  /// Counts in the run's record one more start that has loaded its weights and optimizer
  /// state, from any source.
  void loaded();

  /// Returns how many starts from this checkpoint in a row have ended before they had
  /// done one step.
  int failed_starts(const fs::path& step_dir) const;
  /// Notes that the start begins from the checkpoint of this step.
  void begin(int64_t step);
  /// Returns whether an earlier start of this run had its state. Then the system once had
  /// the memory and the threads for the run, so a refusal of these may pass. Works on all
  /// ranks.
  bool has_begun() const { return begun_; }
  /// Notes that the start has done a step, or that the start ends in order.
  void got_through();

  /// Notes that the checkpoint of this step was read whole and found good. Any rank may
  /// call it.
  void has_read(int64_t step) { read_ = step; }
  std::optional<int64_t> read_checkpoint() const { return read_; }

 private:
  fs::path run_dir_;
  std::optional<run::RunLock> lock_;
  std::optional<run::StartRecord> starts_;
  run::RunPast past_;
  std::string expected_;
  std::string goes_on_from_;
  int attempt_ = 1;
  bool begun_ = false;
  bool begun_anew_ = false;
  std::optional<int64_t> read_;
};

}  // namespace longhaul::train
