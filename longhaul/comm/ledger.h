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

/// What one rank is doing: its step and phase, what its operations are for, what it has
/// sent. One for all communicators that come from the same world (Communicator::ledger);
/// used by the thread that owns them. With a record attached, other processes can read
/// the same and the newest operations; without one, operations cost nothing here.
class Ledger {
 public:
  /// Operations that are started from now on are written there as well.
  void attach(std::shared_ptr<RankRecord> record);
  /// Null without one.
  RankRecord* record() const { return record_.get(); }

  /// For error messages and the record: set("backward", 12).
  void set(std::string_view phase, int64_t step);
  const std::string& phase() const { return phase_; }
  int64_t step() const { return step_; }
  /// "step 12 phase backward: ", or empty before the first set().
  std::string where() const;

  /// What operations from now on are for; see Label.
  std::string exchange_label(std::string label) {
    return std::exchange(label_, std::move(label));
  }
  const std::string& label() const { return label_; }

  /// Operations that were started and have not ended, or ended with an error.
  int64_t under_way() const { return under_way_; }
  void count_under_way(int64_t change) { under_way_ += change; }

  using Clock = std::chrono::steady_clock;
  /// Seconds that this rank has spent waiting for operations, so far.
  double waited_seconds() const { return waited_seconds_; }
  /// This rank has waited for the operation since then, until now.
  void waited_for(const OperationName& name, Clock::time_point since);
  /// Who is told of each wait as it ends; empty: nobody.
  using WaitObserver = std::function<void(const OperationName&, Clock::time_point since)>;
  void set_wait_observer(WaitObserver observer) { wait_observer_ = std::move(observer); }

  /// What this rank sent, by the names of its groups; groups that are gone included.
  const std::map<std::string, CommCounts>& counts() const { return counts_; }
  /// The sum for one name. The reference stays valid.
  CommCounts& counts_of(const std::string& group) { return counts_[group]; }

  /// Operations that are started now are part of a Polling.
  bool polls() const { return polls_; }

 private:
  friend class Polling;
  std::shared_ptr<RankRecord> record_;
  bool polls_ = false;
  std::string phase_;
  int64_t step_ = 0;
  std::string label_;
  int64_t under_way_ = 0;
  double waited_seconds_ = 0.0;
  WaitObserver wait_observer_;
  std::map<std::string, CommCounts> counts_;
};

/// While it lives, operations that are started carry a label in errors and in the record:
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

/// While it lives, all ranks wait in this phase for work beside the training, and ask
/// each other again and again whether it has ended. The record does not show these
/// questions, which would look like progress: a rank whose own part has ended waits in an
/// operation of this name, and one that is at work has not come to it. The name's texts
/// outlive it.
class Polling {
 public:
  Polling(Ledger& ledger, std::string_view phase, const OperationName& name);
  ~Polling();
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  /// What this rank's part of the work has come to, in any unit, and whether only other
  /// ranks' parts are missing.
  void look(uint64_t come_to, bool only_others);

 private:
  Ledger& ledger_;
  std::string phase_before_;
  OperationName name_;
  uint64_t ticket_ = 0;  ///< of the operation, once it waits in it
  uint64_t come_to_ = 0;
};

}  // namespace longhaul::comm
