#include "longhaul/ops/wide_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <array>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/linear/side_by_side.h"

// Shapes: T tokens, n features of this rank's heads, N of all heads.

namespace longhaul::ops {
namespace {

/// Returns the number of features of all heads.
int64_t whole_width(const tensor::ParameterPtr& weight) {
  return weight->slice().global_shape[0];
}

/// Returns whether this rank counts its key heads. If several ranks hold the same key
/// heads, the rank that holds the first of their query heads counts them.
bool counts_keys(const WideNorms& norms) {
  const format::TensorSlice &q = norms.q->slice(), &k = norms.k->slice();
  return q.offset[0] * k.global_shape[0] == k.offset[0] * q.global_shape[0];
}

/// The queries or the keys, as a forward or a backward works on them.
struct WidePart {
  const tensor::ParameterPtr& weight;
  bool counted;
  at::Tensor wide;  ///< x, fp32 [T, n]
};

std::array<WidePart, 2> parts_of(const WideNorms& norms, const at::Tensor& q,
                                 const at::Tensor& k) {
  const auto wide = [](const at::Tensor& x) { return x.flatten(1).to(at::kFloat); };
  return {WidePart{norms.q, true, wide(q)}, {norms.k, counts_keys(norms), wide(k)}};
}

/// Returns the sums of queries and of keys over all ranks, fp32 [2, T].
at::Tensor summed(const WideNorms& norms, const at::Tensor& of_q,
                  const at::Tensor& of_k) {
  at::Tensor sums = at::stack({of_q, of_k});
  if (norms.combine) norms.combine(sums);
  return sums;
}

/// Returns row `part` of [2, T] as [T, 1], which multiplies [T, n].
at::Tensor of_rows(const at::Tensor& both, int64_t part) {
  return both.select(0, part).unsqueeze(1);
}

/// Returns one over the root of the mean square, [2, T].
at::Tensor inverse_rms(const WideNorms& norms, const std::array<WidePart, 2>& parts) {
  const auto squares = [](const WidePart& part) {
    const at::Tensor sum = at::sum(part.wide * part.wide, {-1});
    return part.counted ? sum : sum.zero_();
  };
  const at::Tensor sums = summed(norms, squares(parts[0]), squares(parts[1]));
  const auto mean = [&](int64_t i) {
    return sums.select(0, i) / whole_width(parts[static_cast<size_t>(i)].weight);
  };
  return at::stack({mean(0), mean(1)}).add_(norms.eps).rsqrt_();
}

struct WideNormsSaved {
  WideNorms norms;
  ColumnLayout layout;
};

struct WideNormsNode : Function<WideNormsNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& q,
                             const at::Tensor& k, const at::Tensor& v, WideNorms norms) {
    const auto parts = parts_of(norms, q, k);
    const at::Tensor inverse = inverse_rms(norms, parts);
    const auto normed = [&](const at::Tensor& x, int64_t i) {
      const WidePart& part = parts[static_cast<size_t>(i)];
      return (part.wide * of_rows(inverse, i))
          .mul_(part.weight->weight())
          .to(x.scalar_type())
          .view(x.sizes())
          .detach();  // autograd needs a tensor of its own
    };
    tensor_list out = {normed(q, 0), normed(k, 1), v.detach()};
    ctx->save_for_backward({q, k, inverse});
    save(ctx, WideNormsSaved{std::move(norms), ColumnLayout({q, k, v})});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& [norms, layout] = saved<WideNormsSaved>(ctx);
    const auto t = ctx->get_saved_variables();
    const auto parts = parts_of(norms, t[0], t[1]);
    std::array<at::Tensor, 2> scaled, sums;  // w dy, and its sum with x
    for (const size_t i : {0, 1}) {
      const at::Tensor dy = grads[i].flatten(1).to(at::kFloat);
      const WidePart& part = parts[i];
      if (!part.weight->frozen()) {
        const at::Tensor normal = part.wide * of_rows(t[2], static_cast<int64_t>(i));
        part.weight->grad().add_(at::sum(normal.mul_(dy), {0}));
      }
      scaled[i] = at::mul(dy, part.weight->weight());
      // Ranks that hold the same key heads each have a part of the gradient of these
      // heads.
      sums[i] = at::sum(scaled[i] * part.wide, {-1});
    }
    const at::Tensor all = summed(norms, sums[0], sums[1]);
    tensor_list d = layout.empty(grads[0].options());
    for (const size_t i : {0, 1}) {
      const WidePart& part = parts[i];
      const at::Tensor inverse = of_rows(t[2], static_cast<int64_t>(i));
      at::Tensor dx = scaled[i].mul_(inverse);
      if (part.counted) {
        const at::Tensor mean = of_rows(all, static_cast<int64_t>(i)) /
                                static_cast<double>(whole_width(part.weight));
        dx.sub_(part.wide * (mean * inverse.pow(3)));
      }
      d[i].copy_(dx.view(d[i].sizes()));
    }
    layout.hand_on(2, grads[2], d);
    d.emplace_back();
    return d;
  }
};

void check_wide_norm(const at::Tensor& x, const tensor::ParameterPtr& weight,
                     bool combines) {
  const format::TensorSlice& slice = weight->slice();
  LH_CHECK(x.dim() == 3 && x.size(1) * x.size(2) == slice.extent[0], "wide_norm",
           "{} has {} elements here, the input {} heads of {}", weight->name(),
           slice.extent[0], x.size(1), x.size(-1));
  LH_CHECK(
      combines || slice.is_whole(), "wide_norm",
      "{} is {} of {} elements, and nothing sums over the ranks that have the others",
      weight->name(), slice.extent[0], slice.global_shape[0]);
}

}  // namespace

Heads wide_norm_heads(const Heads& heads, const WideNorms& norms) {
  const auto& [q, k, v] = heads;
  check_wide_norm(q, norms.q, norms.combine != nullptr);
  check_wide_norm(k, norms.k, norms.combine != nullptr);
  const tensor_list out = WideNormsNode::apply(q, k, v, norms);
  return {out[0], out[1], out[2]};
}

}  // namespace longhaul::ops
