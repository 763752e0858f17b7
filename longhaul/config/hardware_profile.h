#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// What was measured of one thing that a machine does: units a second.
struct MeasuredRate {
  std::string name;
  std::string unit;  ///< "FLOP", "B", "token"
  double median = 0.0;
  double low = 0.0, high = 0.0;  ///< of all rounds
  /// Median of the rounds' rates over the first thing's rate in the same round: a machine
  /// that is slower today is slower in both.
  double to_first = 0.0;
};

/// What a machine can do, as `longhaul bench` writes it and [run] hardware names it.
struct HardwareProfile {
  // What it was measured on.
  std::string device;  ///< device::name: "cpu", "NVIDIA H100 80GB HBM3 sm_90"
  std::string cpu;
  int64_t threads = 0;
  std::string made;  ///< program and time, for people
  // Dense products, FLOP/s of one device; 0: not known.
  double peak_bf16 = 0.0;
  double peak_fp32 = 0.0;
  std::vector<MeasuredRate> rates;

  /// Null where it has none of that name.
  const MeasuredRate* find(std::string_view name) const;
};

std::string to_toml(const HardwareProfile& profile);
/// ConfigError with the place in `name` for what is no profile, or has a rate that is no
/// positive number.
HardwareProfile parse_hardware_profile(std::string_view text, std::string_view name);

/// ConfigError where the profile is of another machine than this one; `name` is its file.
void check_machine(const HardwareProfile& profile, std::string_view name,
                   std::string_view device, std::string_view cpu, int64_t threads);

/// "1.21 TFLOP/s"
std::string rate_text(double rate, std::string_view unit);

}  // namespace longhaul
