#include "longhaul/train/history/running_means.h"

#include <fmt/format.h>

#include <cmath>

namespace longhaul::train {

void RunningMeans::add(const run::StepRecord& record) {
  steps_.push_back({record.loss, record.step_time, record.seqs_per_s * record.step_time,
                    record.tokens_per_s * record.step_time, !begun_});
  begun_ = true;
  if (steps() > window_) steps_.pop_front();
}

int64_t RunningMeans::timed_steps() const {
  int64_t count = 0;
  for (const Step& step : steps_) count += counts(step) ? 1 : 0;
  return count;
}

double RunningMeans::loss() const {
  double sum = 0.0;
  int64_t count = 0;
  for (const Step& step : steps_) {
    if (!std::isfinite(step.loss)) continue;
    sum += step.loss;
    ++count;
  }
  return count == 0 ? run::kNoFigure : sum / static_cast<double>(count);
}

double RunningMeans::rate(double Step::* what) const {
  double sum = 0.0;
  double seconds = 0.0;
  for (const Step& step : steps_) {
    if (!counts(step)) continue;
    sum += step.*what;
    seconds += step.seconds;
  }
  return seconds > 0.0 ? sum / seconds : run::kNoFigure;
}

double RunningMeans::step_time() const {
  double seconds = 0.0;
  for (const Step& step : steps_) seconds += counts(step) ? step.seconds : 0.0;
  const int64_t count = timed_steps();
  return count == 0 ? run::kNoFigure : seconds / static_cast<double>(count);
}

std::string RunningMeans::describe() const {
  if (steps() < 2) return "";
  return fmt::format(
      "mean of {}: step_time {:.3f}s throughput {:.2f} seq/s {:.0f} tok/s loss {:.5f}",
      steps(), step_time(), seqs_per_s(), tokens_per_s(), loss());
}

}  // namespace longhaul::train
