#include "longhaul/cluster/pause_watch.h"

#include <chrono>
#include <utility>

namespace longhaul::cluster {
namespace {

double monotonic_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

PauseWatch::PauseWatch(double longest_turn, Clock clock)
    : longest_turn_(longest_turn),
      clock_(clock ? std::move(clock) : Clock(monotonic_seconds)),
      turned_(clock_()),
      woke_(turned_) {}

double PauseWatch::turn() {
  const double now = clock_();
  const double passed = now - turned_;
  turned_ = now;
  if (passed <= longest_turn_) return 0.0;
  woke_ = now;
  return passed;
}

double PauseWatch::awake_seconds() const { return clock_() - woke_; }

}  // namespace longhaul::cluster
