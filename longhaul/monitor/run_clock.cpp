#include "longhaul/monitor/run_clock.h"

#include <algorithm>

#include "longhaul/base/clock.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostBoots = 100'000;
/// Seconds by which a time may lie before that of an earlier line, since two writers may
/// write in another order than that of their times.
constexpr double kOutOfOrder = 5.0;

}  // namespace

double RunClock::time_of(const run::EventHead& event) {
  const auto& [kind, time, boot, booted, attempt] = event;
  if (boot.empty() || booted <= 0.0 || time < 0.0) return time;
  if (!booted_.contains(boot) && booted_.size() < kMostBoots) {
    const bool behind = time < newest_ - kOutOfOrder;
    booted_[boot] = booted + (behind ? newest_ - time : 0.0);
  }
  const auto known = booted_.find(boot);
  const double shift = known == booted_.end() ? 0.0 : known->second - booted;
  if (attempt >= 0 && shifts_.size() < kMostBoots) shifts_[attempt] = shift;
  newest_ = std::max(newest_, time + shift);
  return time + shift;
}

double RunClock::shift_of(int64_t attempt) const {
  const auto found = shifts_.find(attempt);
  return found == shifts_.end() ? 0.0 : found->second;
}

double RunClock::now(double system_now) const {
  const auto here = booted_.find(own_clock().boot);
  return here == booted_.end() ? system_now : here->second + machine_seconds();
}

}  // namespace longhaul::monitor
