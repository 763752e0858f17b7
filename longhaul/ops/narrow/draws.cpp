#include "longhaul/ops/narrow/draws.h"

#include <ATen/TensorOperators.h>

#include <utility>

namespace longhaul::ops::narrow {
namespace {

constexpr int64_t kHalf = 0xFFFF;

int64_t as_int32(uint32_t word) { return static_cast<int32_t>(word); }

at::Tensor low_half(const at::Tensor& x) { return x.bitwise_and(kHalf); }

/// Returns the upper half of a word. The shift of a negative number brings in sign bits,
/// which the mask removes.
at::Tensor high_half(const at::Tensor& x) {
  return x.bitwise_right_shift(16).bitwise_and(kHalf);
}

/// Returns the upper and the lower word of x * factor, from products of halves: each sum
/// below is less than 2^32.
std::pair<at::Tensor, at::Tensor> product(const at::Tensor& x, uint32_t factor) {
  const int64_t f0 = factor & kHalf, f1 = factor >> 16;
  const at::Tensor x0 = low_half(x), x1 = high_half(x);
  const at::Tensor middle = x1 * f0 + high_half(x0 * f0);
  const at::Tensor cross = x0 * f1 + low_half(middle);
  return {x1 * f1 + high_half(middle) + high_half(cross), x * as_int32(factor)};
}

}  // namespace

Words philox(uint64_t key, Words c) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = product(c[0], 0xD2511F53);
    const auto [high1, low1] = product(c[2], 0xCD9E8D57);
    c = {(high1 ^ c[1]) ^ as_int32(k0), low1, (high0 ^ c[3]) ^ as_int32(k1), low0};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

at::Tensor at_least(const at::Tensor& words, uint32_t bound) {
  constexpr uint32_t kSign = 0x80000000;
  return ((words ^ as_int32(kSign)) >= as_int32(bound ^ kSign)).to(at::kFloat);
}

}  // namespace longhaul::ops::narrow
