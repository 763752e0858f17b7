#include "longhaul/cluster/watch/pause_watch.h"

#include <utility>

#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {

PauseWatch::PauseWatch(double longest_turn, Clock clock)
    : longest_turn_(longest_turn),
      clock_(clock ? std::move(clock)
                   : [watch = system::Stopwatch()] { return watch.seconds(); }),
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
