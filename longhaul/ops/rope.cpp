#include "longhaul/ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/side_by_side.h"

namespace longhaul::ops {
namespace {

double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  const double blend = (original / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - blend) * frequency / rope.factor + blend * frequency;
}

/// Returns the share of the frequency of pair `index` that YaRN divides by the factor,
/// from 0 to 1.
double yarn_stretched(const RopeConfig& rope, int64_t index, int64_t rotated) {
  const auto features = static_cast<double>(rotated);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  // Returns the number of the pair, as a real number, that makes so many turns within the
  // original positions.
  const auto turning = [&](double turns) {
    return features * std::log(original / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = turning(rope.beta_fast), high = turning(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, features - 1.0);
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(index) - low) / (high - low), 0.0, 1.0);
}

/// Returns the radians per position of pair `index`.
double frequency_of(const RopeConfig& rope, int64_t index, int64_t rotated) {
  const double exponent = 2.0 * static_cast<double>(index) / static_cast<double>(rotated);
  const double frequency = std::pow(rope.theta, -exponent);
  if (rope.kind == RopeConfig::Kind::Linear) return frequency / rope.factor;
  if (rope.kind == RopeConfig::Kind::Llama3) return llama3_frequency(rope, frequency);
  if (rope.kind != RopeConfig::Kind::Yarn) return frequency;
  const double stretched = yarn_stretched(rope, index, rotated);
  return stretched * frequency / rope.factor + (1.0 - stretched) * frequency;
}

at::Tensor composite_rope(const at::Tensor& x, const RopeTable& table,
                          const at::Tensor& positions, bool inverse) {
  const int64_t half = table.cos.size(1);
  const at::Tensor cos = at::index_select(table.cos, 0, positions).unsqueeze(1);
  at::Tensor sin = at::index_select(table.sin, 0, positions).unsqueeze(1);
  if (inverse) sin = sin * -1.0;
  // The gradients of a split are put together by one cat, not written into zeros.
  const auto parts =
      at::split_with_sizes(x.to(at::kFloat), {half, half, x.size(2) - 2 * half}, 2);
  const at::Tensor &first = parts[0], &second = parts[1], &rest = parts[2];
  return at::cat({first * cos - second * sin, second * cos + first * sin, rest}, 2)
      .to(x.scalar_type());
}

using Rotation = fused::Operation<composite_rope, kernels::Rope>;

/// Writes x [T, heads, D], with the features of the table rotated, to y. y may be x.
void rotate(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
            bool inverse, at::Tensor& y) {
  const int64_t part = 2 * table.cos.size(1);
  const int64_t rest = x.size(2) - part;
  if (rest > 0 && !y.is_same(x)) y.narrow(2, part, rest).copy_(x.narrow(2, part, rest));
  at::Tensor rotated = y.narrow(2, 0, part);
  fused::op<kernels::Rope>(x.narrow(2, 0, part), table.cos, table.sin, positions, inverse,
                           rotated);
}

/// The backward of a rotation is the rotation by the negative angle.
struct RopeNode : Function<RopeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, RopeTable table,
                            const at::Tensor& positions) {
    ctx->save_for_backward({positions});
    at::Tensor y = at::empty_like(x);
    rotate(x, table, positions, /*inverse=*/false, y);
    save(ctx, std::move(table));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const RopeTable& table = saved<RopeTable>(ctx);
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(dy);
    rotate(dy, table, ctx->get_saved_variables()[0], /*inverse=*/true, dx);
    return {dx, Variable(), Variable()};
  }
};

void rotate_anywhere(const at::Tensor& x, const RopeTable& table,
                     const at::Tensor& positions, bool inverse, at::Tensor& y) {
  if (Rotation::has_kernels(/*fused=*/true, x)) {
    rotate(x.stride(2) == 1 ? x : x.contiguous(), table, positions, inverse, y);
  } else {
    y.copy_(Rotation::composite(x, table, positions, inverse));
  }
}

void check_rope(const at::Tensor& x, const RopeTable& table) {
  LH_CHECK(x.dim() == 3 && x.size(2) >= 2 * table.cos.size(1), "rope",
           "input of {} dims with head dim {}, table for {} features", x.dim(),
           x.size(-1), 2 * table.cos.size(1));
}

struct HeadsSaved {
  RopeTable table;
  ColumnLayout layout;
};

struct RopeInPlaceNode : Function<RopeInPlaceNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, RopeTable table,
                             const at::Tensor& positions) {
    tensor_list heads = {q.detach(), k.detach(), v.detach()};
    for (const size_t i : {0, 1}) {
      rotate_anywhere(heads[i], table, positions, /*inverse=*/false, heads[i]);
    }
    ctx->save_for_backward({positions});
    save(ctx, HeadsSaved{std::move(table), ColumnLayout(heads)});
    return heads;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& [table, layout] = saved<HeadsSaved>(ctx);
    const at::Tensor positions = ctx->get_saved_variables()[0];
    tensor_list out = layout.reuse(grads);
    for (const size_t i : {0, 1}) {
      rotate_anywhere(grads[i], table, positions, /*inverse=*/true, out[i]);
    }
    layout.hand_on(2, grads[2], out);
    out.resize(5);
    return out;
  }
};

}  // namespace

RopeTable make_rope_table(const RopeConfig& rope, int64_t rotated, int64_t positions,
                          at::Device device) {
  const int64_t half = rotated / 2;
  RopeTable table{at::empty({positions, half}, at::kFloat),
                  at::empty({positions, half}, at::kFloat)};
  float* cos = table.cos.data_ptr<float>();
  float* sin = table.sin.data_ptr<float>();
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    frequencies.push_back(frequency_of(rope, i, rotated));
  }
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      cos[p * half + i] = static_cast<float>(rope.attention_factor * std::cos(angle));
      sin[p * half + i] = static_cast<float>(rope.attention_factor * std::sin(angle));
    }
  }
  return {table.cos.to(device), table.sin.to(device)};
}

at::Tensor rope(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
                bool fused) {
  check_rope(x, table);
  if (!Rotation::has_kernels(fused, x)) {
    return Rotation::composite(x, table, positions, /*inverse=*/false);
  }
  return RopeNode::apply(x.contiguous(), table, positions);
}

Heads rope_in_place(const Heads& heads, const RopeTable& table,
                    const at::Tensor& positions) {
  const auto& [q, k, v] = heads;
  for (const at::Tensor& x : {q, k}) {
    check_rope(x, table);
    LH_ASSERT(x.stride(2) == 1, "features of a head that do not follow each other");
  }
  const tensor_list out = RopeInPlaceNode::apply(q, k, v, table, positions);
  return {out[0], out[1], out[2]};
}

}  // namespace longhaul::ops
