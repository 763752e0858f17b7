#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "longhaul/comm/counts.h"
#include "longhaul/run/rank_record.h"

namespace longhaul::comm {

/// What one rank is doing: its step and phase, the label of its operations, and the bytes
/// that it has sent. All communicators that come from one world share a ledger
/// (Communicator::ledger); only the thread that owns the communicators uses it. With a
/// record attached, other processes can read step, phase and the newest operations.
class Ledger {
 public:
  /// Attaches `record`: from now on step, phase and new operations are also written to
  /// it.
  void attach(std::shared_ptr<run::RankRecord> record);
  /// Returns the attached record, or null.
  run::RankRecord* record() const { return record_.get(); }

  /// Sets phase and step for error messages and the record: set("backward", 12).
  void set(std::string_view phase, int64_t step);
  const std::string& phase() const { return phase_; }
  int64_t step() const { return step_; }
  /// Returns "step 12 phase backward: ", or an empty text before the first set().
  std::string where() const;

  /// Notes that the error which this rank throws next comes from another rank, so that
  /// this rank is not taken for the rank at fault.
  void failed_elsewhere() {
    if (record_) record_->told();
  }

  /// Sets the label of operations from now on and returns the label before (see Label).
  std::string exchange_label(std::string label) {
    return std::exchange(label_, std::move(label));
  }
  const std::string& label() const { return label_; }

  /// Returns the number of operations that were started and have not ended. An operation
  /// that has failed still counts. count_under_way() changes the number.
  int64_t under_way() const { return under_way_; }
  void count_under_way(int64_t change) { under_way_ += change; }

  using Clock = std::chrono::steady_clock;
  /// Returns the seconds that this rank has spent waiting for operations so far.
  double waited_seconds() const { return waited_seconds_; }
  /// Counts a wait of this rank for the operation from `since` until now.
  void waited_for(const run::OperationName& name, Clock::time_point since);
  /// A function that is called at the end of each wait. An empty observer is not called.
  using WaitObserver =
      std::function<void(const run::OperationName&, Clock::time_point since)>;
  void set_wait_observer(WaitObserver observer) { wait_observer_ = std::move(observer); }

  /// Returns what this rank has sent, by the names of its groups, including groups that
  /// are gone.
  const std::map<std::string, CommCounts>& counts() const { return counts_; }
  /// Returns the counts of all groups of one name together. The reference stays valid.
  CommCounts& counts_of(const std::string& group) { return counts_[group]; }

  /// Returns true while a Polling lives: operations that are started now belong to the
  /// Polling.
  bool polls() const { return polls_; }

 private:
  friend class Polling;
  std::shared_ptr<run::RankRecord> record_;
  bool polls_ = false;
  std::string phase_;
  int64_t step_ = 0;
  std::string label_;
  int64_t under_way_ = 0;
  double waited_seconds_ = 0.0;
  WaitObserver wait_observer_;
  std::map<std::string, CommCounts> counts_;
};

/// While a Label lives, new operations carry its text in errors and in the record:
///   const Label label(group.ledger(), "gradient bucket 3");
class Label {
 public:
  Label(Ledger& ledger, std::string text)
      : ledger_(ledger), before_(ledger.exchange_label(std::move(text))) {}
  ~Label() { ledger_.exchange_label(std::move(before_)); }
  Label(const Label&) = delete;
  Label& operator=(const Label&) = delete;

 private:
  Ledger& ledger_;
  std::string before_;
};

/// While a Polling lives, all ranks wait in a phase for work that runs beside the
/// training and ask each other again and again whether this work has ended. The questions
/// are operations that would look like progress, so the record does not show them.
/// Instead a rank whose own part has ended waits in an operation of the given name, and a
/// rank that is still at work has not come to this operation. The name's texts outlive
/// the Polling.
class Polling {
 public:
  Polling(Ledger& ledger, std::string_view phase, const run::OperationName& name);
  ~Polling();
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  /// Tells the record how far this rank's part of the work has come, in any unit, and
  /// whether only the parts of other ranks are missing.
  void look(uint64_t come_to, bool only_others);

 private:
  Ledger& ledger_;
  std::string phase_before_;
  run::OperationName name_;
  uint64_t ticket_ =
      0;  ///< the operation's ticket in the record, once this rank waits in the operation
  uint64_t come_to_ = 0;
};

}  // namespace longhaul::comm
