#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "longhaul/base/rank_record.h"
#include "longhaul/comm/counts.h"

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

  /// Seconds that this rank has spent waiting for operations, so far.
  double waited_seconds() const { return waited_seconds_; }
  void add_waited(double seconds) { waited_seconds_ += seconds; }

  /// What this rank sent, by the names of its groups; groups that are gone included.
  const std::map<std::string, CommCounts>& counts() const { return counts_; }
  /// The sum for one name. The reference stays valid.
  CommCounts& counts_of(const std::string& group) { return counts_[group]; }

 private:
  std::shared_ptr<RankRecord> record_;
  std::string phase_;
  int64_t step_ = 0;
  std::string label_;
  int64_t under_way_ = 0;
  double waited_seconds_ = 0.0;
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

}  // namespace longhaul::comm
