#include "longhaul/train/log/peak_rate.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::train {
namespace {

/// The rate must change by more than this factor; a smaller change is noise.
constexpr double kNoticeable = 1.01;
/// The peak rate is measured again even where no training step was faster than the peak,
/// but only this many times and for this share of the run's time.
constexpr int kMeasurements = 8;
constexpr double kShareOfTime = 0.005;
/// A measurement is trusted where the process had at least this share of its processors'
/// time. Until one is trusted, measurements may take the larger share of the run's time.
constexpr double kTrusted = 0.8;
constexpr double kUntrustedShareOfTime = 0.02;

}  // namespace

bool PeakRate::wants_measurement(double step_rate, double seconds) const {
  if (known_ > 0.0) return false;
  if (measurements_ == 0 || step_rate > kNoticeable * value_) return true;
  const double allowed = trusted_ ? kShareOfTime : kUntrustedShareOfTime;
  return measurements_ < kMeasurements && spent_ < allowed * seconds;
}

void PeakRate::measured(const MatmulRate& rate, double seconds) {
  measured_ = std::max(measured_, rate.flops);
  value_ = std::max(value_, rate.flops);
  share_ = std::max(share_, rate.share);
  trusted_ = share_ >= kTrusted;
  spent_ += seconds;
  ++measurements_;
}

std::optional<std::string> PeakRate::settle(int64_t step, double step_rate) {
  const double before = told_;
  value_ = std::max(value_, step_rate);
  const bool settled = std::exchange(told_trusted_, trusted_) == trusted_;
  if (value_ <= kNoticeable * told_ && settled) return std::nullopt;
  told_ = value_;
  if (known_ > 0.0 && value_ == known_) {
    return fmt::format(
        "mfu relates to {:.3f} TFLOP/s per rank in {}, the peak of run.hardware",
        value_ * 1e-12, dtype_);
  }
  if (value_ > measured_) {
    return fmt::format(
        "mfu relates to {:.3f} TFLOP/s per rank from step {} on: that step reached this "
        "rate, while {} products {} reach only {:.3f}; 100% means the fastest step so "
        "far",
        value_ * 1e-12, step, dtype_, known_ > 0.0 ? "of run.hardware" : "measured alone",
        std::max(measured_, known_) * 1e-12);
  }
  std::string line =
      fmt::format("mfu relates to a measured {} matmul rate of {:.3f} TFLOP/s per rank",
                  dtype_, value_ * 1e-12);
  if (before > 0.0) {
    line += fmt::format(
        " from step {} on; the rate before was {:.3f}, measured on a busier machine",
        step, before * 1e-12);
  }
  if (!trusted_) {
    line += fmt::format(
        "; mfu is not to be trusted: other work on the machine left "
        "{:.0f}% of the processors to the measurement",
        100.0 * share_);
  }
  return line;
}

}  // namespace longhaul::train
