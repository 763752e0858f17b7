#include "longhaul/train/history/end_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace longhaul::train {
namespace {

/// A decision needs so many measured steps, unless no more than these fit.
constexpr int64_t kFewest = 20;
constexpr double kMostMedians = 5.0;
constexpr double kDeviations = 3.0;
constexpr double kMostMargin = 0.1;

/// How long steps take.
struct Pace {
  double steps = 0.0;  ///< the number that was measured
  double mean = 0.0;   ///< seconds
  double deviation = 0.0;

  /// Returns the seconds that so many steps take, with the margin.
  double seconds(int64_t count) const {
    const auto n = static_cast<double>(count);
    const double margin = kDeviations * deviation * std::sqrt(n + n * n / steps);
    return n * mean + std::min(margin, kMostMargin * n * mean);
  }
};

Pace pace_of(std::span<const double> measured, double seconds_between) {
  std::vector<double> seconds(measured.begin(), measured.end());
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  const double most = kMostMedians * *middle + seconds_between;
  Pace pace{.steps = static_cast<double>(seconds.size())};
  for (double& one : seconds) {
    one = std::min(one, most);
    pace.mean += one;
  }
  pace.mean /= pace.steps;
  double squares = 0.0;
  for (const double one : seconds) squares += (one - pace.mean) * (one - pace.mean);
  pace.deviation = std::sqrt(squares / std::max(1.0, pace.steps - 1.0));
  return pace;
}

/// Returns the largest number of steps, up to `most`, that fit into so many seconds.
int64_t steps_that_fit(const Pace& pace, double seconds, int64_t most) {
  int64_t fit = 0;
  int64_t too_many = most + 1;
  while (too_many - fit > 1) {
    const int64_t middle = fit + (too_many - fit) / 2;
    (pace.seconds(middle) <= seconds ? fit : too_many) = middle;
  }
  return fit;
}

/// Returns the steps of a decay that begins after `step`. Without decay_steps it is a
/// tenth of the steps that the run then has made, for which a tenth of run.steps, an
/// upper bound, would be too long.
int64_t decay_after(int64_t step, const optim::StableSteps& stable,
                    const ScheduleSection& section) {
  if (section.decay_steps) return stable.decay;
  const int64_t made = step - stable.earlier;
  return std::min(stable.decay, wsd_decay_length(section, made + made / 9));
}

}  // namespace

std::optional<optim::Ending> decide_end(std::span<const double> step_seconds,
                                        const EndQuestion& question,
                                        const optim::ScheduleBasis& basis) {
  const auto& [step, most, world, seconds_left, seconds_after] = question;
  const optim::StableSteps stable = optim::stable_steps(basis);
  const auto& before = basis.ending;
  if (before && before->world == world) return std::nullopt;
  if (step_seconds.empty() || step >= most) return std::nullopt;
  if (!before && (step < stable.begin || step >= stable.end)) return std::nullopt;
  const Pace pace = pace_of(step_seconds, seconds_after);
  // One step more than the decay has: if that fits, the decay can begin later.
  const int64_t asked =
      before ? most - step : decay_after(step, stable, basis.section) + 1;
  const int64_t fit = steps_that_fit(pace, seconds_left - seconds_after, asked);
  if (std::ssize(step_seconds) < kFewest && fit > kFewest) return std::nullopt;
  if (!before && fit == asked) return std::nullopt;
  // After the date the decay is finished, as a run with the same ranks finishes it.
  if (before && fit == 0) return optim::Ending{before->begin, before->end, world};
  const int64_t steps = std::clamp<int64_t>(fit, 1, most - step);
  if (!before) return optim::Ending{step, step + steps, world};
  // The remaining share of the decay is kept, so that the rate does not jump.
  const double share = static_cast<double>(before->end - before->begin) /
                       static_cast<double>(std::max<int64_t>(1, before->end - step));
  const auto decay =
      std::max<int64_t>(1, std::llround(static_cast<double>(steps) * share));
  return optim::Ending{std::max(stable.begin, step + steps - decay), step + steps, world};
}

}  // namespace longhaul::train
