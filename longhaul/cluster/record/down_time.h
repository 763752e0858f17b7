#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "longhaul/base/json.h"

namespace longhaul::cluster {

/// Measures what a fault costs: the time from the last record before the fault to the
/// start of the first step after the fault, as the ledger of `report` counts it. A
/// supervisor owns one DownTime, which reads the ends of metrics.jsonl and events.jsonl.
/// All calls come from one thread.
class DownTime {
 public:
  /// Records before `begin` (seconds since 1970) belong to an earlier supervisor.
  DownTime(fs::path run_dir, double begin)
      : run_dir_(std::move(run_dir)), since_(begin) {}

  /// Takes note of the starts before the supervisor's own.
  void begin();
  /// Returns whether a start since begin() was ready for its first step.
  bool has_begun() const;
  /// Takes note of a fault that was found at `now` (seconds since 1970). Returns the
  /// event of the restart before this fault if that restart had not come to a step; the
  /// time from then on belongs to this fault.
  std::optional<Json> fault(double now);
  /// Says that the workers start again. `fields` has what is already known of the event
  /// `restart`.
  void restarts(Json fields);
  /// Returns the event, with `from_step` and `seconds_down`, once: when the first step
  /// after the restart is done. Never throws.
  std::optional<Json> look();
  /// Returns the event of a restart that no step will follow any more. `from_step` is
  /// null if no rank has said from which step it went on.
  std::optional<Json> give_up(double now);

 private:
  void see_attempts(double now);
  /// Returns the step from which ranks last said that they start, in the attempts for
  /// which `of_attempt` holds; null if none has said it.
  Json started_from(const std::function<bool(int64_t)>& of_attempt) const;
  Json finished(const Json& from_step, double until);

  fs::path run_dir_;
  int64_t first_ = 0;    ///< the newest attempt before begin()
  int64_t attempt_ = 0;  ///< the newest attempt before the fault
  double since_;         ///< seconds since 1970; earlier time has been counted already
  std::optional<Json> pending_;
  uint64_t seen_bytes_ = 0;
};

}  // namespace longhaul::cluster
