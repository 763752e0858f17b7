#include "longhaul/train/history/step_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"

namespace longhaul::train {
namespace {

/// Least deviation as a share of the mean: where a loss hardly moves, rounding must not
/// be a spike.
constexpr double kLeastDeviation = 1e-3;
/// The most values of a window in state.json. A longer window means a damaged file.
constexpr size_t kMostValues = 1'000'000;

struct Statistics {
  double mean = 0.0;
  double deviation = 0.0;
};

/// Adds up all values anew each time and always in the same order, so that a resumed run
/// gets the same bits.
Statistics statistics_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Statistics s;
  for (const double value : values) s.mean += value;
  s.mean /= count;
  for (const double value : values) s.deviation += (value - s.mean) * (value - s.mean);
  s.deviation =
      std::max(std::sqrt(s.deviation / count), kLeastDeviation * std::abs(s.mean));
  return s;
}

void push(std::vector<double>& window, double value, int64_t size) {
  window.push_back(value);
  const auto most = static_cast<size_t>(size);
  if (window.size() > most) {
    window.erase(window.begin(), window.end() - static_cast<std::ptrdiff_t>(most));
  }
}

std::vector<double> window_from(const Json& json) {
  auto values = json.get<std::vector<double>>();
  if (values.size() > kMostValues) values.clear();
  return values;
}

}  // namespace

Json GuardState::to_json() const {
  return {{"losses", losses},
          {"norms", norms},
          {"bad_steps", bad_steps},
          {"rollbacks", rollbacks}};
}

GuardState GuardState::from_json(const Json& json) {
  GuardState state;
  state.losses = window_from(json.at("losses"));
  state.norms = window_from(json.at("norms"));
  state.bad_steps = json.at("bad_steps").get<std::vector<int64_t>>();
  state.rollbacks = json.at("rollbacks").get<int64_t>();
  return state;
}

std::string StepGuard::spike(const std::vector<double>& window, const char* name,
                             double value) const {
  const auto enough = static_cast<size_t>(settings_.spike_window / 2);
  if (settings_.spike_sigmas == 0.0 || window.size() < enough) return {};
  const Statistics s = statistics_of(window);
  const double limit = s.mean + settings_.spike_sigmas * s.deviation;
  if (value <= limit) return {};
  return fmt::format(
      "{} {:.6g} is above the limit {:.6g}, which is {} standard deviations of {:.3g} "
      "above the mean {:.6g} of {} good steps",
      name, value, limit, settings_.spike_sigmas, s.deviation, s.mean, window.size());
}

Verdict StepGuard::judge(GuardState& state, int64_t step, double loss, double norm,
                         const std::string& without_targets) const {
  Verdict verdict;
  if (!without_targets.empty()) {
    verdict.kind = "no_targets";
    verdict.why = fmt::format(
        "the batch has no target at all for {}: every label is "
        "ignored, and there is no loss",
        without_targets);
  } else if (!std::isfinite(loss) || !std::isfinite(norm)) {
    verdict.kind = "nonfinite";
    verdict.why = fmt::format("loss {} and gradient norm {}", loss, norm);
  } else {
    verdict.why = spike(state.losses, "loss", loss);
    if (verdict.why.empty()) verdict.why = spike(state.norms, "gradient norm", norm);
    if (!verdict.why.empty()) verdict.kind = "spike";
  }
  verdict.good = verdict.kind.empty();
  if (verdict.good) {
    push(state.losses, loss, settings_.spike_window);
    push(state.norms, norm, settings_.spike_window);
    return verdict;
  }
  std::erase_if(state.bad_steps, [&](int64_t bad) {
    return std::abs(bad - step) >= settings_.spike_window;
  });
  state.bad_steps.push_back(step);
  const auto bad = static_cast<int64_t>(state.bad_steps.size());
  verdict.action = settings_.on_bad_step;
  verdict.too_many =
      verdict.action != BadStepPolicy::Stop && bad > settings_.max_bad_steps;
  if (verdict.too_many) verdict.action = BadStepPolicy::Stop;
  return verdict;
}

void StepGuard::stop_if_told(const Verdict& verdict, const GuardState& state,
                             int64_t step) const {
  if (verdict.good || verdict.action != BadStepPolicy::Stop) return;
  const std::string so_far =
      verdict.too_many ? fmt::format(
                             "; the bad steps are {}, which is more than "
                             "resilience.max_bad_steps = {} within the last {} steps",
                             fmt::join(state.bad_steps, ", "), settings_.max_bad_steps,
                             settings_.spike_window)
                       : "";
  if (verdict.kind == "no_targets") {
    fail_input(
        "data", "step {}: {}{}; look at the data with longhaul inspect{}", step,
        verdict.why, so_far,
        verdict.too_many ? "" : "; resilience.on_bad_step = \"skip\" skips such batches");
  }
  throw Error(
      ErrorKind::Internal, "numerics",
      fmt::format("step {}: {}; the update was not made and nothing was saved since the "
                  "last checkpoint{}; lower optimizer.lr, lengthen the warm-up, or look "
                  "at the batch's data{}",
                  step, verdict.why, so_far,
                  verdict.too_many ? ""
                                   : "; resilience.on_bad_step can skip such steps or "
                                     "roll back"));
}

}  // namespace longhaul::train
