#include <fmt/format.h>

#include <string>

#include "longhaul/config/rules.h"

namespace longhaul::config {
namespace {

/// Throws ConfigError if a rollback may go back further than the oldest checkpoint that
/// is certainly kept.
void check_rollback(const RunConfig& c) {
  const CheckpointSection& saves = c.checkpoint;
  const bool by_the_clock = saves.every_minutes > 0.0;
  if (saves.every == 0 && !by_the_clock) {
    fail_key(c, "resilience.on_bad_step",
             "resilience.on_bad_step = \"rollback\" needs checkpoints to go back to; set "
             "checkpoint.every or checkpoint.every_minutes");
  }
  if (saves.keep == 0) return;
  // Saves by the clock may follow in consecutive steps.
  const int64_t reach = (saves.keep - 1) * (by_the_clock ? 1 : saves.every) + 1;
  if (c.resilience.rollback_steps <= reach) return;
  const std::string apart = by_the_clock
                                ? "beside saves by the clock (checkpoint.every_minutes)"
                                : fmt::format("of every {} steps", saves.every);
  fail_key(c, "resilience.rollback_steps",
           "resilience.rollback_steps = {} reaches past the checkpoints: checkpoint.keep "
           "= {} {} are sure to hold only the last {}; lower it or raise checkpoint.keep",
           c.resilience.rollback_steps, saves.keep, apart, reach);
}

}  // namespace

void check_bad_steps(const RunConfig& c, std::vector<std::string>& warnings) {
  const ResilienceSection& r = c.resilience;
  const ResilienceSection defaults;  // resolved settings name every key
  const bool rolls_back = r.on_bad_step == BadStepPolicy::Rollback;
  if (rolls_back) check_rollback(c);
  const WarnUnused unused{c, warnings};
  unused(!rolls_back && r.rollback_steps != defaults.rollback_steps,
         "resilience.rollback_steps", "resilience.on_bad_step is not \"rollback\"");
  unused(
      r.on_bad_step == BadStepPolicy::Stop && r.max_bad_steps != defaults.max_bad_steps,
      "resilience.max_bad_steps", "resilience.on_bad_step is \"stop\"");
  if (!c.debug.faults.empty()) {
    warnings.push_back(
        fmt::format("{}: debug.faults: {} FAULTS ARE MADE ON PURPOSE; this is a test, no "
                    "training",
                    origin(c, "debug.faults"), c.debug.faults.size()));
  }
  if (!c.debug.delays.empty()) {
    warnings.push_back(fmt::format("{}: debug.delays: ranks are SLOWED DOWN on purpose",
                                   origin(c, "debug.delays")));
  }
}

}  // namespace longhaul::config
