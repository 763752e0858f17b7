#include "longhaul/optim/run_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

/// The largest number of past rates that are compared.
constexpr int64_t kCompared = 2048;

int64_t horizon_of(const ScheduleBasis& basis) {
  return basis.section.horizon.value_or(basis.steps);
}

bool rewarms(const ScheduleBasis& basis) {
  return basis.from && basis.section.continue_ == ContinueKind::Rewarm;
}

/// Returns the rate at the end of the warm-up that a resumed run makes anew.
double peak_of(const ScheduleBasis& basis) {
  return basis.lr * basis.section.continue_fraction;
}

/// Returns the number of steps of the warm-up that a resumed run makes anew. A warm-up
/// that is given as a share is a share of the steps that are left.
int64_t new_warmup(const ScheduleBasis& basis) {
  if (!rewarms(basis)) return 0;
  const int64_t left = horizon_of(basis) - basis.from->step;
  return std::llround(warmup_length(basis.section, std::max<int64_t>(1, left)));
}

/// Lets the decay begin and end as it was decided, in a section that counts its steps
/// from step `before` of the run.
void end_as_decided(const ScheduleBasis& basis, int64_t before,
                    ScheduleSection& section) {
  if (!basis.ending) return;
  section.horizon = basis.ending->end - before;
  section.decay_steps = basis.ending->end - basis.ending->begin;
}

/// Returns the schedule of the steps after the warm-up that a resumed run makes anew, or
/// of all steps if there is no such warm-up.
Schedule shape_of(const ScheduleBasis& basis) {
  if (!rewarms(basis)) {
    ScheduleSection section = basis.section;
    // The length of the warm-up stays, whatever the horizon becomes.
    if (basis.ending) section.warmup_steps = stable_steps(basis).begin;
    end_as_decided(basis, 0, section);
    return {section, basis.lr, basis.steps};
  }
  const int64_t left = horizon_of(basis) - basis.from->step - new_warmup(basis);
  const double peak = peak_of(basis);
  if (left < 1) {
    fail_config(
        "schedule",
        "continue = \"rewarm\" after step {} with a warm-up of {} steps leaves nothing "
        "of the {} steps up to the horizon; raise run.steps or schedule.horizon",
        basis.from->step, new_warmup(basis), horizon_of(basis));
  }
  if (basis.section.kind != ScheduleKind::Constant && peak <= basis.section.min_lr) {
    fail_config("schedule",
                "continue_fraction = {} of optimizer.lr = {} is {}, which is not above "
                "schedule.min_lr = {}",
                basis.section.continue_fraction, basis.lr, peak, basis.section.min_lr);
  }
  ScheduleSection section = basis.section;
  section.warmup_steps.reset();
  section.warmup_fraction.reset();
  section.horizon = left;
  end_as_decided(basis, basis.from->step + new_warmup(basis), section);
  return {section, peak, left};
}

std::vector<std::string> changed_keys(const RunConfig& saved, const RunConfig& now) {
  std::vector<std::string> keys;
  for (const ConfigChange& change : diff_configs(saved, now)) {
    if (!change.key.starts_with("schedule.")) continue;
    keys.push_back(
        fmt::format("{} was {}, is {}", change.key, change.old_value, change.new_value));
  }
  return keys;
}

/// Returns whether two schedules have the same rates so far and the same next rate.
bool agree_so_far(const ScheduleBasis& a, const ScheduleBasis& b, int64_t step) {
  const RunSchedule one(a);
  const RunSchedule other(b);
  const int64_t stride = std::max<int64_t>(1, step / kCompared);
  for (int64_t s = 1; s <= step; s += stride) {
    if (one.lr(s) != other.lr(s)) return false;
  }
  return one.lr(step + 1) == other.lr(step + 1);
}

}  // namespace

StableSteps stable_steps(const ScheduleBasis& basis) {
  const int64_t horizon = horizon_of(basis);
  if (!rewarms(basis)) {
    const int64_t decay = wsd_decay_length(basis.section, horizon);
    return {std::llround(warmup_length(basis.section, horizon)), horizon - decay, decay};
  }
  const int64_t begin = basis.from->step + new_warmup(basis);
  const int64_t decay = wsd_decay_length(basis.section, horizon - begin);
  return {begin, horizon - decay, decay, begin};
}

Json Ending::to_json() const {
  return {{"begin", begin}, {"end", end}, {"world", world}};
}

Ending Ending::from_json(const Json& json) {
  return {json.at("begin").get<int64_t>(), json.at("end").get<int64_t>(),
          json.at("world").get<int64_t>()};
}

Json ScheduleBasis::to_json() const {
  Json json = {{"section", schedule_to_toml(section)}, {"lr", lr}, {"steps", steps}};
  if (from) json["from"] = {{"step", from->step}, {"rate", from->rate}};
  if (ending) json["ending"] = ending->to_json();
  return json;
}

ScheduleBasis ScheduleBasis::from_json(const Json& json) {
  try {
    ScheduleBasis basis;
    basis.section = schedule_from_toml(json.at("section").get<std::string>(),
                                       "the checkpoint's schedule");
    basis.lr = json.at("lr").get<double>();
    basis.steps = json.at("steps").get<int64_t>();
    if (json.contains("from")) {
      basis.from = {json["from"].at("step").get<int64_t>(),
                    json["from"].at("rate").get<double>()};
    }
    if (json.contains("ending")) basis.ending = Ending::from_json(json["ending"]);
    return basis;
  } catch (const Json::exception& error) {
    fail_input("checkpoint", "state.json: schedule: {}", words_of(error));
  }
}

RunSchedule::RunSchedule(const ScheduleBasis& basis)
    : basis_(basis),
      warmup_(new_warmup(basis)),
      peak_(peak_of(basis)),
      horizon_(static_cast<double>(horizon_of(basis))),
      shape_(shape_of(basis)) {
  if (!basis.from || rewarms(basis)) return;
  if (basis.from->rate <= basis.section.min_lr) {
    fail_config("schedule",
                "continue = \"decay\" after step {}, where the rate is {:.6g}: it is not "
                "above schedule.min_lr = {:.6g}, so nothing is left to decay",
                basis.from->step, basis.from->rate, basis.section.min_lr);
  }
  if (horizon_of(basis) <= basis.from->step) {
    fail_config("schedule",
                "continue = \"decay\" after step {} has no steps left to decay in, "
                "because the horizon is {}; raise run.steps or schedule.horizon",
                basis.from->step, horizon_of(basis));
  }
}

double RunSchedule::decay(double k) const {
  const double span = horizon_ - static_cast<double>(basis_.from->step);
  const double low = basis_.section.min_lr;
  const double x = (k - 1.0) / span;
  if (x >= 1.0) return low;
  const DecayForm form = basis_.section.decay.value_or(DecayForm::Linear);
  return low + (basis_.from->rate - low) * decay_left(form, x);
}

double RunSchedule::lr(int64_t step) const {
  if (!basis_.from) return shape_.lr(step);
  const int64_t k = step - basis_.from->step;
  if (k < 1) return basis_.from->rate;
  if (!rewarms(basis_)) return decay(static_cast<double>(k));
  if (k > warmup_) return shape_.lr(k - warmup_);
  return basis_.from->rate + (peak_ - basis_.from->rate) * static_cast<double>(k) /
                                 static_cast<double>(warmup_ + 1);
}

std::string RunSchedule::describe() const {
  if (!basis_.from) return {};
  if (rewarms(basis_)) {
    return fmt::format("rewarm after step {}: from {:.6g} to {:.6g} over {} steps",
                       basis_.from->step, basis_.from->rate, peak_, warmup_);
  }
  return fmt::format("decay after step {}: from {:.6g} to {:.6g} at step {}",
                     basis_.from->step, basis_.from->rate, basis_.section.min_lr,
                     horizon_of(basis_));
}

ScheduleBasis resumed_schedule(const Resumed& resumed, const RunConfig& now,
                               int64_t steps, bool trains) {
  const ScheduleBasis& saved = resumed.basis;
  const auto asked = now.schedule.continue_;
  std::vector<std::string> changed = changed_keys(resumed.saved, now);
  if (changed.empty()) {
    if (asked == ContinueKind::Keep) return saved;
    ScheduleBasis same{now.schedule, now.optimizer.lr, steps, saved.from};
    if (now.run.ends_by_speed()) same.ending = saved.ending;
    if (saved.from) same.lr = saved.lr;
    ScheduleBasis before = same;
    before.steps = saved.steps;
    before.ending = saved.ending;
    const bool ends_alike = same.ending == saved.ending;
    if ((steps == saved.steps && ends_alike) ||
        agree_so_far(before, same, resumed.step)) {
      return same;
    }
    changed.push_back(
        ends_alike
            ? fmt::format(
                  "the run's steps were {} and are now {} ({}), and learning rates of "
                  "past steps depend on them",
                  saved.steps, steps, now.run.steps ? "run.steps" : "run.epochs")
            : fmt::format("run.until or run.budget was given, and the decay that was "
                          "decided for it has begun after step {}",
                          saved.ending->begin));
  }
  if (!asked) {
    if (!trains) return saved;
    fail_config(
        "schedule",
        "the checkpoint of step {} was made with another schedule: {}. Set "
        "schedule.continue to \"keep\" (its schedule goes on), \"rewarm\" (warm up again "
        "to continue_fraction of optimizer.lr, then follow this schedule) or \"decay\" "
        "(decay from its learning rate to min_lr), or restore the settings",
        resumed.step, fmt::join(changed, "; "));
  }
  if (*asked == ContinueKind::Keep || !trains) return saved;
  return {now.schedule, now.optimizer.lr, steps,
          Junction{resumed.step, RunSchedule(saved).lr(resumed.step + 1)}};
}

ScheduleBasis imported_schedule(const RunConfig& now, int64_t steps, int64_t step) {
  const auto asked = now.schedule.continue_;
  if (asked && *asked != ContinueKind::Rewarm) {
    fail_config("schedule",
                "schedule.continue: the imported checkpoint has no schedule to keep and "
                "no learning rate to decay from; use \"rewarm\", which begins at 0");
  }
  ScheduleBasis basis{now.schedule, now.optimizer.lr, steps};
  if (asked) basis.from = Junction{step, 0.0};
  return basis;
}

ScheduleBasis first_schedule(const RunConfig& config, int64_t steps) {
  if (config.schedule.continue_) {
    throw ConfigError("schedule",
                      "schedule.continue goes on from a checkpoint's schedule, and this "
                      "run starts without a checkpoint; leave schedule.continue out, or "
                      "name a checkpoint by checkpoint.resume");
  }
  return {config.schedule, config.optimizer.lr, steps};
}

std::vector<RatePoint> rate_points(const RunSchedule& schedule, int64_t first,
                                   int64_t last) {
  if (first > last) return {};
  const ScheduleBasis& basis = schedule.basis();
  const int64_t begin = basis.from ? basis.from->step : 0;
  const auto plain = static_cast<int64_t>(
      warmup_length(basis.section, basis.section.horizon.value_or(basis.steps)));
  const int64_t warmup = rewarms(basis) ? new_warmup(basis) : basis.from ? 0 : plain;
  std::set<int64_t> steps{first, last};
  for (const int64_t quarter : {1, 2, 3}) {
    steps.insert(std::max<int64_t>(1, begin + (basis.steps - begin) * quarter / 4));
  }
  if (warmup > 0) steps.insert(begin + warmup + 1);
  if (basis.ending) steps.insert(basis.ending->begin + 1);
  std::vector<RatePoint> points;
  for (const int64_t step : steps) {
    if (step >= first && step <= last) points.push_back({step, schedule.lr(step)});
  }
  return points;
}

}  // namespace longhaul::optim
