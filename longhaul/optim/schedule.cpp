#include "longhaul/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

WarmupStart warmup_start(const ScheduleSection& section) {
  if (section.warmup_start) return *section.warmup_start;
  const bool from_zero =
      section.kind == ScheduleKind::Linear || section.kind == ScheduleKind::Smp ||
      (section.kind == ScheduleKind::Cosine && section.constant_steps > 0);
  return from_zero ? WarmupStart::Zero : WarmupStart::NonZero;
}

DecayForm decay_form(const ScheduleSection& section) {
  if (section.decay) return *section.decay;
  return section.kind == ScheduleKind::Smp ? DecayForm::Cosine : DecayForm::Linear;
}

}  // namespace

Schedule::Schedule(const ScheduleSection& section, double lr, int64_t steps)
    : section_(section), lr_(lr) {
  const int64_t horizon = section.horizon.value_or(steps);
  horizon_ = static_cast<double>(horizon);
  warmup_ = warmup_length(section, horizon);
  decay_ = static_cast<double>(wsd_decay_length(section, horizon));
  section_.warmup_start = warmup_start(section);
  section_.decay = decay_form(section);

  double tail = 0.0;
  if (section.kind == ScheduleKind::Cosine) {
    tail = static_cast<double>(section.constant_steps);
  } else if (section.kind == ScheduleKind::Wsd) {
    tail = decay_;
  } else if (section.kind == ScheduleKind::Smp && *section_.decay == DecayForm::Plateau) {
    tail = section.plateau_fraction * horizon_;
  }
  if (horizon < 1 || warmup_ < 0.0 || tail < 0.0 || warmup_ + tail > horizon_) {
    fail_config("schedule",
                "a warm-up of {} steps and {} further fixed steps do not fit into {} "
                "steps; shorten them or raise run.steps",
                warmup_, tail, horizon);
  }
}

double Schedule::lr(int64_t step) const {
  LH_CHECK(step >= 1, "schedule", "step = {}; optimizer steps count from 1", step);
  const auto s = static_cast<double>(step - 1);
  if (section_.kind == ScheduleKind::Smp) return smp(s);
  if (in_warmup(s)) return warmup_rate(s);
  if (section_.kind == ScheduleKind::Cosine) return cosine(s);
  if (section_.kind == ScheduleKind::Linear) return linear(s);
  return section_.kind == ScheduleKind::Wsd ? wsd(s) : lr_;
}

bool Schedule::in_warmup(double s) const { return warmup_ > 0.0 && s < warmup_; }

double Schedule::warmup_rate(double s) const {
  if (section_.warmup_start == WarmupStart::Zero) return lr_ * s / warmup_;
  return lr_ * (s + 1.0) / (warmup_ + 1.0);
}

double decay_left(DecayForm form, double x) {
  if (form == DecayForm::Cosine) return 0.5 * (1.0 + std::cos(std::numbers::pi * x));
  return form == DecayForm::Sqrt ? 1.0 - std::sqrt(x) : 1.0 - x;
}

double Schedule::decayed(DecayForm form, double x) const {
  return section_.min_lr + (lr_ - section_.min_lr) * decay_left(form, x);
}

double Schedule::cosine(double s) const {
  const double span = horizon_ - warmup_ - static_cast<double>(section_.constant_steps);
  if (s - warmup_ >= span) return section_.min_lr;
  return decayed(DecayForm::Cosine, (s - warmup_) / span);
}

double Schedule::linear(double s) const {
  if (s >= horizon_) return section_.min_lr;
  return decayed(DecayForm::Linear, (s - warmup_) / (horizon_ - warmup_));
}

double Schedule::wsd(double s) const {
  if (s >= horizon_) return section_.min_lr;
  const double start = horizon_ - decay_;
  if (s <= start) return lr_;
  return decayed(*section_.decay, (s - start) / decay_);
}

double Schedule::smp(double s) const {
  // The quirks of the source system, the SageMaker examples, are kept. The denominator is
  // T and not T - W, the count stops at T - W, and min_lr is a lower bound of the rates
  // after the warm-up.
  const double last = horizon_ - warmup_;
  if (warmup_ > 0.0 && s <= warmup_) return lr_ * std::min(s, last) / warmup_;
  const double n = std::min(s, last) - warmup_;
  double rate = lr_;
  switch (*section_.decay) {
    case DecayForm::Linear:
      rate = lr_ * (horizon_ - n) / horizon_;
      break;
    case DecayForm::Cosine:
      rate = lr_ / 2.0 * (std::cos(std::numbers::pi * n / horizon_) + 1.0);
      break;
    case DecayForm::Exponential:
      rate = lr_ * std::exp(-0.693 * n / horizon_);
      break;
    case DecayForm::Plateau: {
      const double end = warmup_ + section_.plateau_fraction * horizon_;
      if (s > end) rate = lr_ * (horizon_ - s) / (horizon_ - end);
      break;
    }
    default:
      break;
  }
  return std::max(rate, section_.min_lr);
}

}  // namespace longhaul::optim
