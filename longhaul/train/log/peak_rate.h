#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace longhaul::train {

/// A measured rate of matrix products.
struct MatmulRate {
  double flops = 0.0;  ///< a second
  /// The share of its processors' time that this process had during the measurement; 1
  /// where that is not known, as for a GPU.
  double share = 1.0;
};

/// The rate that MFU relates to, in FLOP/s: the peak of a hardware profile, else the best
/// measured rate of matrix products, raised to what steps reach. Other work on the
/// machine makes a measurement too low and never too high. So the measurement is repeated
/// while that costs little. It is repeated at once when a step is faster, so that MFU is
/// never above 1. A rate for which the process lacked its processors is called
/// untrustworthy, and measured again sooner.
class PeakRate {
 public:
  /// `dtype` is the name of the dtype for the log: "bf16". `known` is the peak of a
  /// hardware profile, with which nothing is measured; 0: there is none.
  explicit PeakRate(std::string dtype, double known = 0.0)
      : dtype_(std::move(dtype)), value_(known), known_(known) {}

  /// Returns whether to measure now: after a step that reached `step_rate`, `seconds`
  /// after the program's start.
  bool wants_measurement(double step_rate, double seconds) const;
  /// Takes a measurement, which took `seconds`.
  void measured(const MatmulRate& rate, double seconds);
  /// Takes the step's own rate; afterwards value() is the rate that the step's MFU
  /// relates to. Returns a line for the log where value() has changed by more than 1 %
  /// since the last line, or has become trustworthy.
  std::optional<std::string> settle(int64_t step, double step_rate);

  double value() const { return value_; }
  int measurements() const { return measurements_; }

 private:
  std::string dtype_;
  double value_ = 0.0;
  double known_ = 0.0;
  double measured_ = 0.0;  ///< the best measurement
  double told_ = 0.0;
  double share_ = 0.0;  ///< the largest share that a measurement had
  bool trusted_ = false;
  bool told_trusted_ = false;
  double spent_ = 0.0;  ///< seconds of all measurements
  int measurements_ = 0;
};

}  // namespace longhaul::train
