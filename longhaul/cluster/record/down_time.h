#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "longhaul/base/json.h"

namespace longhaul::cluster {

/// What a fault costs: the time from the last thing that the run recorded before it to
/// the begin of the first step after it, as the ledger of `report` counts it. Taken from
/// the ends of metrics.jsonl and events.jsonl; one thread.
class DownTime {
 public:
  /// What lies before `begin` (seconds since 1970) is an earlier supervisor's.
  DownTime(fs::path run_dir, double begin)
      : run_dir_(std::move(run_dir)), since_(begin) {}

  /// A fault was found (seconds since 1970). Returns the event of the restart before it,
  /// where that had not come to a step: the rest of the time is this fault's.
  std::optional<Json> fault(double now);
  /// The workers start again; the fields of the event `restart` that are known already.
  void restarts(Json fields);
  /// The event, with `from_step` and `seconds_down`, once the first step after the
  /// restart is done; nothing before and afterwards. Never throws.
  std::optional<Json> look();
  /// The event of a restart that nothing follows any more. `from_step` is null where no
  /// rank said where it went on.
  std::optional<Json> give_up(double now);

 private:
  /// The step that the ranks last said they start from, in attempts like that; or null.
  Json started_from(const std::function<bool(int64_t)>& of_attempt) const;
  Json finished(const Json& from_step, double until);

  fs::path run_dir_;
  int64_t attempt_ = 0;  ///< the newest before the fault
  double since_;         ///< seconds since 1970; what lies before is counted already
  std::optional<Json> pending_;
  uint64_t seen_bytes_ = 0;
};

}  // namespace longhaul::cluster
