#include "longhaul/ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"
#include "longhaul/ops/node.h"

// Shapes: B sequences, S queries, P cached positions, K = P + S keys, Hq and Hkv heads,
// G = Hq / Hkv, D head dim, n queries of a block, m keys that a block can see.

namespace longhaul::ops {
namespace {

constexpr int64_t kQueryBlock = 256;

struct Shape {
  int64_t B, S, K, Hq, Hkv, D;
  int64_t cached() const { return K - S; }
  int64_t group() const { return Hq / Hkv; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(D)); }
};

Shape shape_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  LH_CHECK(
      q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) &&
          q.size(3) == k.size(3) && k.size(1) >= q.size(1) && q.size(2) % k.size(2) == 0,
      "attention", "queries of {} heads and length {}, keys of {} heads and length {}",
      q.size(2), q.size(1), k.size(2), k.size(1));
  return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
}

/// [B, L, Hkv * G, D] -> [B, Hkv, G, L, D]
at::Tensor by_group(const at::Tensor& x, int64_t key_heads) {
  return x.view({x.size(0), x.size(1), key_heads, x.size(2) / key_heads, x.size(3)})
      .permute({0, 2, 3, 1, 4});
}

/// The scores of queries [from, from + n) against keys [0, m), fp32, masked:
/// [B, Hkv, G, n, m].
at::Tensor block_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& start,
                        const Shape& s, int64_t from, int64_t n) {
  const int64_t m = s.cached() + from + n;
  const at::Tensor queries = by_group(q.narrow(1, from, n), s.Hkv);
  const at::Tensor keys = by_group(k.narrow(1, 0, m), s.Hkv);
  at::Tensor scores =
      at::matmul(queries, keys.transpose(-1, -2)).to(at::kFloat).mul_(s.scale());
  const auto index = at::TensorOptions().dtype(at::kInt).device(q.device());
  const at::Tensor key = at::arange(m, index);
  const at::Tensor last = at::arange(s.cached() + from, m, index).unsqueeze(1);
  at::Tensor hidden = key > last;  // [n, m]
  if (start.defined()) {
    hidden = hidden.unsqueeze(0).logical_or(key < start.narrow(1, from, n).unsqueeze(2));
    hidden = hidden.view({s.B, 1, 1, n, m});
  }
  return scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
}

/// The composite form: plain ATen operations on any device.
struct CompositeNode : Function<CompositeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            std::optional<at::Tensor> start) {
    const Shape s = shape_of(q, k, v);
    at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
    at::Tensor lse =
        at::empty({s.B, s.Hkv, s.group(), s.S}, q.options().dtype(at::kFloat));
    for (int64_t from = 0; from < s.S; from += kQueryBlock) {
      const int64_t n = std::min(kQueryBlock, s.S - from);
      const at::Tensor scores =
          block_scores(q, k, start.value_or(at::Tensor()), s, from, n);
      const at::Tensor block_lse = at::logsumexp(scores, -1);
      const at::Tensor p = at::exp(scores - block_lse.unsqueeze(-1)).to(q.scalar_type());
      const at::Tensor values = by_group(v.narrow(1, 0, scores.size(-1)), s.Hkv);
      by_group(out.narrow(1, from, n), s.Hkv).copy_(at::matmul(p, values));
      lse.narrow(3, from, n).copy_(block_lse);
    }
    ctx->save_for_backward({q, k, v, out, lse, start.value_or(at::Tensor())});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const at::Tensor &q = t[0], &k = t[1], &v = t[2], &out = t[3], &lse = t[4],
                     &start = t[5];
    const Shape s = shape_of(q, k, v);
    const at::Tensor dout = grads[0].contiguous();
    at::Tensor dq = at::empty_like(q, at::MemoryFormat::Contiguous);
    // Sums over query blocks in fp32.
    at::Tensor dk = at::zeros({s.B, s.Hkv, s.K, s.D}, q.options().dtype(at::kFloat));
    at::Tensor dv = at::zeros_like(dk);
    for (int64_t from = 0; from < s.S; from += kQueryBlock) {
      const int64_t n = std::min(kQueryBlock, s.S - from);
      const at::Tensor scores = block_scores(q, k, start, s, from, n);
      const int64_t m = scores.size(-1);
      const at::Tensor p = at::exp(scores - lse.narrow(3, from, n).unsqueeze(-1));
      const at::Tensor dy = by_group(dout.narrow(1, from, n), s.Hkv);
      const at::Tensor y = by_group(out.narrow(1, from, n), s.Hkv);
      const at::Tensor delta =
          (dy.to(at::kFloat) * y.to(at::kFloat)).sum({-1}, /*keepdim=*/true);
      const at::Tensor values = by_group(v.narrow(1, 0, m), s.Hkv);
      const at::Tensor dp = at::matmul(dy, values.transpose(-1, -2)).to(at::kFloat);
      const at::Tensor ds = (p * (dp - delta)).mul_(s.scale()).to(q.scalar_type());
      const at::Tensor keys = by_group(k.narrow(1, 0, m), s.Hkv);
      const at::Tensor queries = by_group(q.narrow(1, from, n), s.Hkv);
      by_group(dq.narrow(1, from, n), s.Hkv).copy_(at::matmul(ds, keys));
      // The heads of a group add up.
      dk.narrow(2, 0, m).add_(at::matmul(ds.transpose(-1, -2), queries).sum({2}));
      dv.narrow(2, 0, m).add_(
          at::matmul(p.to(q.scalar_type()).transpose(-1, -2), dy).sum({2}));
    }
    const auto home = [&](const at::Tensor& x) {
      return x.permute({0, 2, 1, 3}).to(q.scalar_type()).contiguous();
    };
    return {dq, home(dk), home(dv), Variable()};
  }
};

struct FusedNode : Function<FusedNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            std::optional<at::Tensor> start) {
    at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
    at::Tensor lse =
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    fused::attention_forward(q, k, v, start.value_or(at::Tensor()), out, lse);
    ctx->save_for_backward({q, k, v, out, lse, start.value_or(at::Tensor())});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    at::Tensor dq = at::empty_like(t[0], at::MemoryFormat::Contiguous);
    at::Tensor dk = at::empty_like(t[1], at::MemoryFormat::Contiguous);
    at::Tensor dv = at::empty_like(t[2], at::MemoryFormat::Contiguous);
    fused::attention_backward(grads[0].contiguous(), t[0], t[1], t[2], t[3], t[4], t[5],
                              dq, dk, dv);
    return {dq, dk, dv, Variable()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& document_start, bool fused) {
  const Shape s = shape_of(q, k, v);
  const auto start =
      document_start.defined() ? std::optional(document_start) : std::nullopt;
  if (fused && fused::supports_attention(q, s.D)) return FusedNode::apply(q, k, v, start);
  return CompositeNode::apply(q, k, v, start);
}

}  // namespace longhaul::ops
