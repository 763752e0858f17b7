#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/ops/kernels/cpu.h"

// Data and measures for the kernels' tests. References are written in double over the
// very values that the kernel sees, so that only the kernel's own rounding remains.

namespace longhaul::kernels::testing {

inline float widen(float x) { return x; }
inline float widen(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
inline void narrow(float x, float* y) { *y = x; }
inline void narrow(float x, Bf16* y) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  y->bits = static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

using Doubles = std::vector<double>;

template <typename T>
double value(const std::vector<T>& x, int64_t i) {
  return static_cast<double>(widen(x[static_cast<size_t>(i)]));
}
inline double& element(Doubles& x, int64_t i) { return x[static_cast<size_t>(i)]; }

/// What rounding to T can change a value by, relatively: 2^-p for p significant bits.
template <typename T>
constexpr double kRounding = std::is_same_v<T, Bf16> ? 1.0 / (1 << 8) : 1.0 / (1 << 24);
/// The tolerance for a kernel's fp32 sums of a few hundred terms.
constexpr double kSums = 2e-6;

/// Returns near-normal values of standard deviation `size`. A seed gives the same values
/// on every machine.
template <typename T = float>
std::vector<T> random_values(int64_t count, uint64_t seed, float size = 1.0F) {
  std::vector<T> out(static_cast<size_t>(count));
  uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (T& value : out) {
    double sum = -6.0;  // a sum of 12 uniform numbers is near normal
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<double>(state >> 40) / (1 << 24);
    }
    narrow(static_cast<float>(sum) * size, &value);
  }
  return out;
}

constexpr Activation kActivations[] = {Activation::Silu, Activation::GeluTanh,
                                       Activation::GeluExact};

/// Returns an activation and its derivative, from the definition.
inline std::pair<double, double> activation_and_slope(Activation activation, double x) {
  if (activation == Activation::Silu) {
    const double s = 1.0 / (1.0 + std::exp(-x));
    return {x * s, s + x * s * (1.0 - s)};
  }
  if (activation == Activation::GeluExact) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    return {x * below, below + x * density};
  }
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double wave = std::tanh(root * (x + 0.044715 * x * x * x));
  const double inner = root * (1.0 + 3.0 * 0.044715 * x * x);
  return {0.5 * x * (1.0 + wave),
          0.5 * (1.0 + wave) + 0.5 * x * (1.0 - wave * wave) * inner};
}

/// Returns ||a - b|| / ||b||.
template <typename T>
double distance(const std::vector<T>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(widen(a[i])) - b[i];
    difference += d * d;
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Returns the instruction sets of this CPU. LONGHAUL_TEST_ISA names a single set, for an
/// emulator, which is slow.
inline std::vector<system::Isa> all_isas() {
  const char* only = std::getenv("LONGHAUL_TEST_ISA");
  std::vector<system::Isa> out;
  for (system::Isa isa : {system::Isa::Avx2, system::Isa::Avx512, system::Isa::Avx512Bf16,
                          system::Isa::Amx}) {
    if (only != nullptr && std::string_view(only) != system::isa_name(isa)) continue;
    if (isa <= system::best_isa()) out.push_back(isa);
  }
  return out;
}

/// Calls body(T{}, isa) for both element types and every instruction set of this CPU.
template <typename Body>
void for_all(Body body) {
  for (system::Isa isa : all_isas()) {
    SCOPED_TRACE(system::isa_name(isa));
    {
      SCOPED_TRACE("fp32");
      body(float{}, isa);
    }
    SCOPED_TRACE("bf16");
    body(Bf16{}, isa);
  }
}

/// Calls body(T{}, isas) for both element types, with every instruction set of this CPU:
/// for tests whose reference, which takes longer than the kernels, is the same for all of
/// them.
template <typename Body>
void for_each_type(Body body) {
  {
    SCOPED_TRACE("fp32");
    body(float{}, all_isas());
  }
  SCOPED_TRACE("bf16");
  body(Bf16{}, all_isas());
}

}  // namespace longhaul::kernels::testing
