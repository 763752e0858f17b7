#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace longhaul::train {

/// What mfu relates to, in FLOP/s: the peak of a hardware profile, else the best of the
/// rates that matrix products were measured at, raised to what steps reach. Other work on
/// the machine makes a measurement too low and never too high, so it is repeated while
/// that costs little, and at once when a step is faster: mfu is never above 1.
class PeakRate {
 public:
  /// `dtype`: "bf16", for the lines. `known`: what a hardware profile says, which nothing
  /// is measured for; 0: none.
  explicit PeakRate(std::string dtype, double known = 0.0)
      : dtype_(std::move(dtype)), value_(known), known_(known) {}

  /// Whether to measure now: after a step that reached `step_rate`, `seconds` after the
  /// program's start.
  bool wants_measurement(double step_rate, double seconds) const;
  /// A measurement found `rate` and took `seconds`.
  void measured(double rate, double seconds);
  /// Takes the step's own rate; from here on value() is what its mfu relates to. A line
  /// for the log where that has changed by more than 1 % since the last line.
  std::optional<std::string> settle(int64_t step, double step_rate);

  double value() const { return value_; }

 private:
  std::string dtype_;
  double value_ = 0.0;
  double known_ = 0.0;
  double measured_ = 0.0;  ///< the best measurement
  double told_ = 0.0;
  double spent_ = 0.0;  ///< seconds, in all
  int measurements_ = 0;
};

}  // namespace longhaul::train
