#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/config/rules.h"

namespace longhaul {

double warmup_length(const ScheduleSection& schedule, int64_t horizon) {
  if (schedule.warmup_steps) return static_cast<double>(*schedule.warmup_steps);
  const double exact =
      schedule.warmup_fraction.value_or(0.0) * static_cast<double>(horizon);
  return schedule.kind == ScheduleKind::Smp ? exact : std::round(exact);
}

int64_t wsd_decay_length(const ScheduleSection& schedule, int64_t horizon) {
  return schedule.decay_steps.value_or(std::max<int64_t>(1, horizon / 10));
}

namespace config {
namespace {

bool has_warmup(const ScheduleSection& s) {
  return s.warmup_steps.value_or(0) > 0 || s.warmup_fraction.value_or(0.0) > 0.0;
}

bool wsd_form(DecayForm form) {
  return form == DecayForm::Linear || form == DecayForm::Cosine ||
         form == DecayForm::Sqrt;
}

void check_forms(const RunConfig& c) {
  const ScheduleSection& s = c.schedule;
  if (s.warmup_steps && s.warmup_fraction) {
    fail_key(
        c, "schedule.warmup_fraction",
        "schedule.warmup_steps and schedule.warmup_fraction are both given; keep one "
        "of them");
  }
  if (s.continue_ == ContinueKind::Decay && !wsd_form(*s.decay)) {
    fail_key(c, "schedule.decay",
             "schedule.decay: continue = \"decay\" decays as \"linear\", \"cosine\" or "
             "\"sqrt\"");
  }
  if (s.kind == ScheduleKind::Wsd && !wsd_form(*s.decay)) {
    fail_key(
        c, "schedule.decay",
        "schedule.decay: kind = \"wsd\" decays as \"linear\", \"cosine\" or \"sqrt\"");
  }
  if (s.kind == ScheduleKind::Smp && *s.decay == DecayForm::Sqrt) {
    fail_key(
        c, "schedule.decay",
        "schedule.decay = \"sqrt\" belongs to kind = \"wsd\"; kind = \"smp\" decays as "
        "\"cosine\", \"linear\", \"exponential\", \"plateau\" or \"constant\"");
  }
  if (s.kind == ScheduleKind::Smp && s.warmup_start == WarmupStart::NonZero) {
    fail_key(c, "schedule.warmup_start",
             "schedule.warmup_start = \"nonzero\": kind = \"smp\" always starts at zero");
  }
  if (s.kind != ScheduleKind::Constant && s.min_lr >= c.optimizer.lr) {
    fail_key(c, "schedule.min_lr",
             "schedule.min_lr = {} must be less than optimizer.lr = {}", s.min_lr,
             c.optimizer.lr);
  }
}

/// Checks the settings by which measured speed ends a run.
void check_ends(const RunConfig& c) {
  if (!c.run.ends_by_speed()) return;
  const ScheduleSection& s = c.schedule;
  const std::string key = c.run.until ? "run.until" : "run.budget";
  if (s.kind != ScheduleKind::Wsd) {
    fail_key(c, key,
             "{} needs schedule.kind = \"wsd\", whose decay can begin at any step; set "
             "it, or leave {} out",
             key, key);
  }
  if (s.continue_ == ContinueKind::Keep || s.continue_ == ContinueKind::Decay) {
    fail_key(c, "schedule.continue",
             "schedule.continue = \"{}\" says where the decay is, so that {} cannot "
             "decide it; leave one of them out",
             s.continue_ == ContinueKind::Keep ? "keep" : "decay", key);
  }
  if (c.run.budget && !c.run.price_per_node_hour) {
    fail_key(c, "run.budget",
             "run.budget = {} needs run.price_per_node_hour, what a node costs an hour",
             *c.run.budget);
  }
}

void warn_forms(const RunConfig& c, std::vector<std::string>& warnings) {
  const ScheduleSection& s = c.schedule;
  const WarnUnused unused{c, warnings};
  const auto only = [](const char* kind) {
    return fmt::format("it belongs to kind = \"{}\"", kind);
  };
  const bool constant = s.kind == ScheduleKind::Constant;
  const bool wsd = s.kind == ScheduleKind::Wsd;
  const bool smp = s.kind == ScheduleKind::Smp;
  const bool decays = s.continue_ == ContinueKind::Decay;
  const bool flat = constant && !decays;
  unused(!c.run.budget, "run.price_per_node_hour", "it belongs to run.budget");
  unused(flat && s.min_lr != 0.0, "schedule.min_lr", "kind = \"constant\" never decays");
  unused(flat && s.horizon && !s.warmup_fraction, "schedule.horizon",
         "kind = \"constant\" never decays");
  unused(s.continue_ != ContinueKind::Rewarm && s.continue_fraction != 1.0,
         "schedule.continue_fraction", "it belongs to continue = \"rewarm\"");
  unused(s.kind != ScheduleKind::Cosine && s.constant_steps != 0,
         "schedule.constant_steps", only("cosine"));
  unused(!wsd && !smp && !decays && s.decay.has_value(), "schedule.decay",
         "it belongs to kinds wsd and smp");
  unused(!wsd && s.decay_steps.has_value(), "schedule.decay_steps", only("wsd"));
  unused(s.plateau_fraction != 0.0 && !(smp && s.decay == DecayForm::Plateau),
         "schedule.plateau_fraction",
         "it belongs to kind = \"smp\" with decay = \"plateau\"");
  unused(!has_warmup(s) && s.warmup_start.has_value(), "schedule.warmup_start",
         "there is no warm-up");
  if (s.horizon && c.run.steps && *s.horizon < *c.run.steps && !flat) {
    warnings.push_back(fmt::format(
        "{}: schedule.horizon = {} is before run.steps = {}: the last {} steps "
        "stay at the end of the decay",
        origin(c, "schedule.horizon"), *s.horizon, *c.run.steps,
        *c.run.steps - *s.horizon));
  }
}

/// Warns if the decay of wsd may not be what the user expects: its length is the default,
/// or the run ends before the decay begins.
void warn_decay(const RunConfig& c, std::vector<std::string>& warnings) {
  const ScheduleSection& s = c.schedule;
  if (s.kind != ScheduleKind::Wsd) return;
  const auto horizon = s.horizon ? s.horizon : c.run.steps;
  if (!s.decay_steps) {
    const std::string length = horizon && !c.run.ends_by_speed()
                                   ? fmt::format(", which is the last {} of {} steps",
                                                 wsd_decay_length(s, *horizon), *horizon)
                                   : "";
    warnings.push_back(
        fmt::format("{}: kind = \"wsd\" without schedule.decay_steps decays over a tenth "
                    "of the schedule{}",
                    origin(c, "schedule.kind"), length));
  }
  if (!horizon || !c.run.steps) return;
  const int64_t stable = *horizon - wsd_decay_length(s, *horizon);
  if (stable < *c.run.steps) return;
  warnings.push_back(
      fmt::format("{}: the decay begins after step {}, and the run ends with step {}: "
                  "the learning rate never decays; lower schedule.horizon, or let the "
                  "rate decay later with continue = \"decay\"",
                  origin(c, "schedule.kind"), stable, *c.run.steps));
}

}  // namespace

void resolve(RunConfig& config) {
  resolve_optimizer(config);
  resolve_data(config);
  ScheduleSection& s = config.schedule;
  const bool linear = s.kind == ScheduleKind::Wsd || s.continue_ == ContinueKind::Decay;
  if (!s.decay && linear) s.decay = DecayForm::Linear;
  if (!s.decay && s.kind == ScheduleKind::Smp) s.decay = DecayForm::Cosine;
  if (!s.warmup_start && has_warmup(s)) {
    const bool from_zero = s.kind == ScheduleKind::Linear ||
                           s.kind == ScheduleKind::Smp ||
                           (s.kind == ScheduleKind::Cosine && s.constant_steps > 0);
    s.warmup_start = from_zero ? WarmupStart::Zero : WarmupStart::NonZero;
  }
}

void check_schedule_length(const RunConfig& c, int64_t steps) {
  const ScheduleSection& s = c.schedule;
  const int64_t horizon = s.horizon.value_or(steps);
  if (c.run.ends_by_speed() && horizon < steps) {
    fail_key(
        c, "schedule.horizon",
        "schedule.horizon = {} is before the run's last step {}, and {} cannot end "
        "a run whose decay is over; leave schedule.horizon out, or end the run there",
        horizon, steps, c.run.until ? "run.until" : "run.budget");
  }
  const std::string warmup_key =
      s.warmup_fraction ? "schedule.warmup_fraction" : "schedule.warmup_steps";
  const double warmup = warmup_length(s, horizon);
  const auto fail_sum = [&](const std::string& key, const std::string& parts) {
    fail_key(c, key,
             "the warm-up of {} steps and {} do not fit into the schedule's {} steps",
             warmup, parts, horizon);
  };
  if (warmup > 0 && warmup >= static_cast<double>(std::min(horizon, steps))) {
    fail_key(c, warmup_key,
             "a warm-up of {} steps must be shorter than the run ({} steps) and its "
             "schedule ({} steps)",
             warmup, steps, horizon);
  }
  const auto room = static_cast<double>(horizon) - warmup;
  if (s.kind == ScheduleKind::Cosine && static_cast<double>(s.constant_steps) >= room) {
    fail_sum("schedule.constant_steps",
             fmt::format("schedule.constant_steps = {}", s.constant_steps));
  }
  const int64_t decay = wsd_decay_length(s, horizon);
  if (s.kind == ScheduleKind::Wsd && static_cast<double>(decay) > room) {
    fail_sum("schedule.decay_steps", fmt::format("a decay of {} steps", decay));
  }
  const double plateau = s.plateau_fraction * static_cast<double>(horizon);
  if (s.kind == ScheduleKind::Smp && s.decay == DecayForm::Plateau && plateau >= room) {
    fail_sum("schedule.plateau_fraction", fmt::format("a plateau of {} steps", plateau));
  }
}

void check_schedule(const RunConfig& config, std::vector<std::string>& warnings) {
  check_forms(config);
  check_ends(config);
  if (config.run.steps) check_schedule_length(config, *config.run.steps);
  warn_forms(config, warnings);
  warn_decay(config, warnings);
}

}  // namespace config
}  // namespace longhaul
