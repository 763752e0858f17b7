#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "longhaul/run/step_record.h"

namespace longhaul::monitor {

/// A step's record in the list of all records.
struct StepRow : run::StepRecord {
  bool counts = true;  ///< false: taken back by a later start or a rollback
};

/// A validation's record in the list of all records.
struct ValidationRow : run::ValidationRecord {
  bool counts = true;  ///< false: its step was taken back
};

/// The lines of metrics.jsonl in their order, and which of them count. A step that is
/// done again takes back all records from that step on, and a start from a checkpoint all
/// records after the checkpoint. Lines of an attempt that a later attempt has replaced
/// never count.
class Records {
 public:
  /// More lines are refused, so that a hostile file cannot take the machine's memory.
  static constexpr size_t kMost = 20'000'000;

  /// Adds one line; `padded` has LineTail::kPadding readable bytes behind it. Throws
  /// InputError beyond kMost lines.
  void add_line(std::string_view padded);
  void add(const run::StepRecord& record);
  /// Takes steps back, for a start from the checkpoint of `step` or a return to it: what
  /// attempts up to `attempt` recorded above `step` until `before` (seconds since 1970)
  /// counts no more.
  void take_back(int64_t step, int attempt, double before);
  /// Moves the times of records that have come since the last call to the clock that the
  /// run began with: `shift` says by how many seconds, for an attempt.
  void set_clocks(const std::function<double(int attempt)>& shift);
  void clear();

  /// Returns all steps, including those that count no more.
  const std::vector<StepRow>& all() const { return all_; }
  /// Returns all validations, including those that count no more.
  const std::vector<ValidationRow>& validations() const { return validations_; }
  /// Returns indices into all(): the steps that count, ascending.
  const std::vector<size_t>& counted() const { return counted_; }
  const run::StepRecord& counted_at(size_t i) const { return all_[counted_[i]]; }
  /// Returns the step done last; null when there is none.
  const run::StepRecord* last() const {
    return counted_.empty() ? nullptr : &all_[counted_.back()];
  }
  /// Returns how many lines are no record.
  int64_t unreadable() const { return unreadable_; }
  int newest_attempt() const { return newest_attempt_; }
  /// Returns whether this is the first step that an attempt recorded: it warms up.
  bool is_first_of_attempt(const run::StepRecord& record) const;

 private:
  template <typename Taken>
  void take_back_validations(Taken taken);
  std::vector<StepRow> all_;
  std::vector<size_t> counted_;
  std::vector<ValidationRow> validations_;
  std::map<int, int64_t> first_;
  size_t set_steps_ = 0;  ///< of all_, whose clocks are set
  size_t set_validations_ = 0;
  int newest_attempt_ = 0;
  int64_t unreadable_ = 0;
};

/// Returns the median of the steps' sequences per second, or NaN when there is no step.
/// Steps that a later attempt has done again do not count, nor does the first step of an
/// attempt.
double median_throughput(const Records& records);

/// Returns the median; NaN of nothing. Values that are not finite are left out.
double median(std::vector<double> values);

}  // namespace longhaul::monitor
