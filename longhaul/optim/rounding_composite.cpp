#include "longhaul/optim/rounding_composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

namespace longhaul::optim {
namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

at::Tensor high_bits(const at::Tensor& x, int64_t from) { return x.__rshift__(from); }

/// Returns x * factor modulo 2^32; no intermediate needs more than 63 bits.
at::Tensor times(const at::Tensor& x, int64_t factor) {
  const at::Tensor low = (x & 0xFFFF) * factor;
  const at::Tensor high = ((high_bits(x, 16) * factor) & 0xFFFF) * 65536;
  return (low + high) & kLow32;
}

at::Tensor mixed_composite(const at::Tensor& x) {
  const at::Tensor once = times(x ^ high_bits(x, 16), 0x7FEB352D);
  const at::Tensor twice = times(once ^ high_bits(once, 15), 0x846CA68B);
  return twice ^ high_bits(twice, 16);
}

/// Returns the numbers of the elements in their tensor, ascending.
at::Tensor numbers(const ElementPlace& place, const at::Tensor& like) {
  const at::Tensor own = at::arange(place.begin, place.begin + like.numel(),
                                    like.options().dtype(at::kLong));
  const at::Tensor column = own.remainder(place.row);
  const at::Tensor run = (own - column).divide(place.row, "trunc");
  return run * place.stride + place.first + column;
}

}  // namespace

at::Tensor rounded_composite(const at::Tensor& x, const Rounding& rounding, RoundingOf of,
                             int64_t update) {
  const at::Tensor number = numbers(rounding.place, x);
  const int64_t begin = rounding.place.begin;
  const int64_t first = number_of(rounding.place, begin) >> 32;
  const int64_t last = number_of(rounding.place, begin + x.numel() - 1) >> 32;
  at::Tensor random;
  for (int64_t high = first; high <= last; ++high) {
    const RoundingKeys keys = rounding_keys(rounding.key, update, high);
    const at::Tensor once =
        mixed_composite((number + static_cast<int64_t>(keys.of[of][0])) & kLow32);
    const at::Tensor bits =
        high_bits(mixed_composite(once ^ static_cast<int64_t>(keys.of[of][1])), 16);
    random =
        high == first ? bits : at::where(high_bits(number, 32).eq(high), bits, random);
  }
  const at::Tensor bits = x.view(at::kInt).to(at::kLong) & kLow32;
  const at::Tensor rounded =
      high_bits(bits + random, 16).to(at::kShort).view(at::kBFloat16);
  return at::where(x.isnan(), x.to(at::kBFloat16), rounded);
}

void store_composite(const at::Tensor& into, const at::Tensor& x, RoundingOf of,
                     const AdamWTensors& t, int64_t update) {
  const bool random = t.rounding && into.scalar_type() == at::kBFloat16;
  into.copy_(random ? rounded_composite(x, *t.rounding, of, update) : x);
}

}  // namespace longhaul::optim
