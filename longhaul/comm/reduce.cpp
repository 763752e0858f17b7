#include "longhaul/comm/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

/// Elements that are summed at a time, so that the accumulators stay in the first-level
/// cache.
constexpr int64_t kBlock = 1024;

struct Bf16 {
  uint16_t bits;
};
float load(Bf16 x) { return format::bf16_to_float(x.bits); }
float load(float x) { return x; }
double load(double x) { return x; }
uint64_t load(int64_t x) { return static_cast<uint64_t>(x); }

void store(Bf16& to, float x) { to.bits = format::float_to_bf16(x); }
void store(float& to, float x) { to = x; }
void store(double& to, double x) { to = x; }
void store(int64_t& to, uint64_t x) { to = static_cast<int64_t>(x); }

template <typename A>
A larger(A a, A b) {
  if constexpr (std::is_same_v<A, uint64_t>) {
    return static_cast<int64_t>(a) < static_cast<int64_t>(b) ? b : a;
  } else {
    return a > b || a != a ? a : b;  // a NaN on either side stays
  }
}

template <typename T, ReduceOp Op>
void reduce_typed(std::span<const std::byte* const> parts, std::byte* out,
                  int64_t count) {
  using A = decltype(load(T{}));
  std::array<A, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = load(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = reinterpret_cast<const T*>(parts[p]) + begin;
      A* total = sum.data();
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (Op == ReduceOp::Sum) {
          total[i] += load(part[i]);
        } else {
          total[i] = larger(total[i], load(part[i]));
        }
      }
    }
    T* to = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) store(to[i], sum[static_cast<size_t>(i)]);
  }
}

template <typename T>
void reduce_any(std::span<const std::byte* const> parts, std::byte* out, int64_t count,
                ReduceOp op) {
  if (op == ReduceOp::Sum) {
    reduce_typed<T, ReduceOp::Sum>(parts, out, count);
  } else {
    reduce_typed<T, ReduceOp::Max>(parts, out, count);
  }
}

}  // namespace

bool is_reducible(format::DType dtype) {
  return dtype == format::DType::F32 || dtype == format::DType::BF16 ||
         dtype == format::DType::F64 || dtype == format::DType::I64;
}

void reduce_parts(std::span<const std::byte* const> parts, std::byte* out, int64_t count,
                  format::DType dtype, ReduceOp op) {
  LH_ASSERT(!parts.empty(), "nothing to reduce");
  switch (dtype) {
    case format::DType::F32:
      return reduce_any<float>(parts, out, count, op);
    case format::DType::BF16:
      return reduce_any<Bf16>(parts, out, count, op);
    case format::DType::F64:
      return reduce_any<double>(parts, out, count, op);
    case format::DType::I64:
      return reduce_any<int64_t>(parts, out, count, op);
    default:
      LH_ASSERT(false, "dtype {} cannot be reduced", format::dtype_name(dtype));
  }
}

}  // namespace longhaul::comm
