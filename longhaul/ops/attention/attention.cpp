#include "longhaul/ops/attention/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/library_attention.h"
#include "longhaul/ops/common/dropout_draws.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/side_by_side.h"

// The shapes have B sequences, S queries, K keys (P cached ones before the queries' own)
// and Hq and Hkv heads. G is Hq / Hkv, D the head dim, n the queries of a block, and m
// the keys that a block can see.

namespace longhaul::ops {
namespace {

constexpr int64_t kQueryBlock = 256;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Shape {
  explicit Shape(const AttentionPart& part)
      : B(part.q.size(0)),
        S(part.q.size(1)),
        K(part.k.size(1)),
        Hkv(part.k.size(2)),
        G(part.q.size(2) / part.k.size(2)),
        causal(!part.mask.document_end.defined()),
        offset(part.query_begin - part.key_begin),
        scale(scale_of<double>(part.mask, part.q.size(3))) {}
  int64_t B, S, K, Hkv, G;
  bool causal;
  int64_t offset;  ///< the position of query 0 among the keys
  double scale;

  /// Returns one past the last key that queries before `end` see; first() returns the
  /// first key that queries from `from` on see.
  int64_t seen(int64_t end) const {
    return causal ? std::clamp<int64_t>(offset + end, 0, K) : K;
  }
  int64_t first(int64_t from, int64_t window) const {
    return causal ? std::clamp<int64_t>(offset + from + 1 - window, 0, K) : 0;
  }
};

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
           const AttentionMask& mask) {
  LH_CHECK(
      q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) &&
          q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
      "attention", "queries of {} heads and length {}, keys of {} heads and length {}",
      q.size(2), q.size(1), k.size(2), k.size(1));
  LH_CHECK(mask.window > 0, "attention", "a window of {} keys", mask.window);
  const auto fits = [&](const at::Tensor& of_queries) {
    return !of_queries.defined() ||
           (of_queries.sizes() == q.sizes().slice(0, 2) && of_queries.is_contiguous());
  };
  LH_CHECK(fits(mask.document_start) && fits(mask.document_end), "attention",
           "starts or ends of documents that are not contiguous [{}, {}]", q.size(0),
           q.size(1));
  LH_CHECK(!mask.document_end.defined() || mask.window == kNoWindow, "attention",
           "a window of {} keys where queries see later keys", mask.window);
  const auto of_scores = static_cast<float>(mask.scale.value_or(1.0));
  LH_CHECK(std::isfinite(of_scores) && of_scores > 0.0F, "attention",
           "the scale of attention scores is {}; it must be finite and above 0 in fp32",
           mask.scale.value_or(0.0));
  const Dropout& dropout = mask.dropout;
  LH_CHECK(!dropout.drops() ||
               (dropout.probability < 1.0 && dropout.sequences.defined() &&
                dropout.sequences.dim() == 1 && dropout.sequences.size(0) == q.size(0) &&
                dropout.sequences.scalar_type() == at::kLong &&
                dropout.sequences.is_contiguous()),
           "attention", "dropout of {} without the numbers of {} sequences (int64)",
           dropout.probability, q.size(0));
}

/// [B, L, Hkv * G, D] -> [B, Hkv, G, L, D]
at::Tensor by_group(const at::Tensor& x, int64_t key_heads) {
  return x.view({x.size(0), x.size(1), key_heads, x.size(2) / key_heads, x.size(3)})
      .permute({0, 2, 3, 1, 4});
}

/// A block of queries, [from, from + n), with the m keys from `key` on that the block can
/// see.
struct Block {
  Block(const AttentionPart& part, const Shape& s, int64_t from_)
      : from(from_),
        n(std::min(kQueryBlock, s.S - from)),
        key(s.first(from, part.mask.window)),
        m(std::max<int64_t>(0, s.seen(from + n) - key)),
        q(by_group(part.q.narrow(1, from, n), s.Hkv)),
        k(by_group(part.k.narrow(1, key, m), s.Hkv)),
        v(by_group(part.v.narrow(1, key, m), s.Hkv)) {}
  int64_t from, n, key, m;
  at::Tensor q, k, v;  ///< [B, Hkv, G or 1, n or m, D]

  /// Returns the masked scores, fp32 [B, Hkv, G, n, m].
  at::Tensor scores(const AttentionPart& part, const Shape& s) const {
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2)).to(at::kFloat).mul_(s.scale);
    return scores.masked_fill_(hidden(part, s), kMinusInfinity);
  }

  /// Returns which keys a query does not see, [n, m] or [B, 1, 1, n, m].
  at::Tensor hidden(const AttentionPart& part, const Shape& s) const {
    const auto index = at::TensorOptions().dtype(at::kInt).device(q.device());
    const at::Tensor keys = at::arange(key, key + m, index);
    const auto among_keys = [&](const at::Tensor& bound) {
      return (bound.narrow(1, from, n) - part.key_begin).unsqueeze(2);
    };
    const auto& [start, window, end, dropout, documents, scale] = part.mask;
    at::Tensor out;
    if (s.causal) {
      const int64_t after = s.offset + from + n;
      const at::Tensor last = at::arange(after - n, after, index).unsqueeze(1);
      out = keys > last;
      if (window < after) out = out.logical_or(keys <= last - window);
    } else {
      out = keys >= among_keys(end);
    }
    if (start.defined()) out = out.logical_or(keys < among_keys(start));
    return out.dim() == 2 ? out : out.view({s.B, 1, 1, n, m});
  }

  /// Returns the dropout factors of probabilities, fp32 [B, Hkv, G, n, m].
  at::Tensor factors(const AttentionPart& part, const Shape& s) const {
    const Dropout& draws = part.mask.dropout;
    const auto index = at::TensorOptions().dtype(at::kLong).device(q.device());
    const int64_t row = part.query_begin + from;
    const int64_t heads = s.Hkv * s.G;
    return dropout_factors(draws, draws.sequences.view({s.B, 1, 1, 1}),
                           at::arange(row, row + n, index).view({n, 1}),
                           at::arange(draws.first_head, draws.first_head + heads, index)
                               .view({heads, 1, 1}),
                           part.key_begin + key, m)
        .view({s.B, s.Hkv, s.G, n, m});
  }
};

/// Returns the rows of a block of [B, Hq, S], as [B, Hkv, G, n].
at::Tensor rows_of(const at::Tensor& lse, const Shape& s, const Block& b) {
  return lse.view({s.B, s.Hkv, s.G, s.S}).narrow(3, b.from, b.n);
}

/// Returns lse with 0 for minus infinity, the value of a row without keys, so that
/// e^(score - lse) of such a row is 0 instead of NaN.
at::Tensor finite(const at::Tensor& lse) {
  return lse.masked_fill(lse == kMinusInfinity, 0.0);
}

/// Computes the composite form: plain ATen operations on any device.
void composite_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  const Shape s(part);
  for (int64_t from = 0; from < s.S; from += kQueryBlock) {
    const Block b(part, s, from);
    if (b.m == 0) continue;
    const at::Tensor scores = b.scores(part, s);
    const at::Tensor before = rows_of(lse, s, b);
    const at::Tensor now = at::logaddexp(before, at::logsumexp(scores, -1));
    const at::Tensor base = finite(now);
    at::Tensor p = at::exp(scores - base.unsqueeze(-1));
    if (part.mask.dropout.drops()) p.mul_(b.factors(part, s));
    by_group(out.narrow(1, from, b.n), s.Hkv)
        .mul_(at::exp(before - base).unsqueeze(-1))
        .add_(at::matmul(p.to(part.q.scalar_type()), b.v));
    before.copy_(now);
  }
}

void composite_backward(const AttentionPart& part, const at::Tensor& dout,
                        const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                        at::Tensor& dk, at::Tensor& dv) {
  const Shape s(part);
  const auto type = part.q.scalar_type();
  const auto sums = [](const at::Tensor& x, const Block& b) {
    return x.permute({0, 2, 1, 3}).narrow(2, b.key, b.m);  // [B, Hkv, m, D]
  };
  for (int64_t from = 0; from < s.S; from += kQueryBlock) {
    const Block b(part, s, from);
    if (b.m == 0) continue;
    const at::Tensor scores = b.scores(part, s);
    at::Tensor p = at::exp(scores - finite(rows_of(lse, s, b)).unsqueeze(-1));
    const at::Tensor dy = by_group(dout.narrow(1, from, b.n), s.Hkv);
    const at::Tensor y = by_group(out.narrow(1, from, b.n), s.Hkv);
    const at::Tensor delta =
        (dy.to(at::kFloat) * y.to(at::kFloat)).sum({-1}, /*keepdim=*/true);
    at::Tensor dp = at::matmul(dy, b.v.transpose(-1, -2)).to(at::kFloat);
    at::Tensor factors;
    if (part.mask.dropout.drops()) {
      factors = b.factors(part, s);
      dp = dp * factors;
    }
    const at::Tensor ds = (p * (dp - delta)).mul_(s.scale).to(type);
    if (factors.defined()) p.mul_(factors);
    by_group(dq.narrow(1, from, b.n), s.Hkv).add_(at::matmul(ds, b.k));
    // The gradients of a key head add up over the query heads of its group.
    sums(dk, b).add_(at::matmul(ds.transpose(-1, -2), b.q).sum({2}));
    sums(dv, b).add_(at::matmul(p.to(type).transpose(-1, -2), dy).sum({2}));
  }
}

/// Returns all keys as one part; the last S keys belong to the queries.
AttentionPart all_keys(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionMask& mask) {
  return {q, k, v, mask, k.size(1) - q.size(1), 0, false};
}

struct CompositeNode : Function<CompositeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            AttentionMask mask) {
    const auto fp32 = q.options().dtype(at::kFloat);
    at::Tensor sum = at::zeros_like(q, fp32, at::MemoryFormat::Contiguous);
    at::Tensor lse = at::full({q.size(0), q.size(2), q.size(1)}, kMinusInfinity, fp32);
    composite_forward(all_keys(q, k, v, mask), sum, lse);
    at::Tensor out = sum.to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, lse});
    save(ctx, std::move(mask));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto zeros = [](const at::Tensor& x) {
      return at::zeros_like(x, x.options().dtype(at::kFloat),
                            at::MemoryFormat::Contiguous);
    };
    at::Tensor dq = zeros(t[0]), dk = zeros(t[1]), dv = zeros(t[2]);
    composite_backward(all_keys(t[0], t[1], t[2], saved<AttentionMask>(ctx)),
                       grads[0].contiguous(), t[3], t[4], dq, dk, dv);
    const auto type = t[0].scalar_type();
    return {dq.to(type), dk.to(type), dv.to(type), Variable()};
  }
};

struct FusedNode : Function<FusedNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            AttentionMask mask) {
    at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
    at::Tensor lse =
        at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    fused::attention_forward(all_keys(q, k, v, mask), fused::Results::Replace, out, lse);
    ctx->save_for_backward({q, k, v, out, lse});
    save(ctx, std::move(mask));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    tensor_list d = ColumnLayout({t[0], t[1], t[2]}).empty(t[0].options());
    fused::attention_backward(all_keys(t[0], t[1], t[2], saved<AttentionMask>(ctx)),
                              fused::Results::Replace, grads[0].contiguous(), t[3], t[4],
                              d[0], d[1], d[2]);
    d.emplace_back();
    return d;
  }
};

struct LibraryNode : Function<LibraryNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            AttentionMask mask) {
    const library::Attended result = library::attention_forward(q, k, v, mask);
    ctx->save_for_backward({q, k, v, result.out, result.lse, result.rng, result.unused});
    save(ctx, std::move(mask));
    return result.out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto [dq, dk, dv] = library::attention_backward(
        grads[0], t[0], t[1], t[2], saved<AttentionMask>(ctx), {t[3], t[4], t[5], t[6]});
    return {dq, dk, dv, Variable()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionMask& mask, bool fused) {
  check(q, k, v, mask);
  LH_CHECK(k.size(1) >= q.size(1), "attention", "{} queries, but {} keys", q.size(1),
           k.size(1));
  if (fused && fused::supports_attention(q)) {
    return FusedNode::apply(q, k, v, mask);
  }
  if (fused && library::supports_attention(q, k, mask)) {
    return LibraryNode::apply(q, k, v, mask);
  }
  return CompositeNode::apply(q, k, v, mask);
}

bool attention_part_takes_rows(const at::Tensor& q, const AttentionMask& mask) {
  return !fused::supports_attention(q) &&
         library::supports_attention_part({q, q, q, mask});
}

void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  const at::NoGradGuard no_grad;
  check(part.q, part.k, part.v, part.mask);
  if (part.fused && fused::supports_attention(part.q)) {
    return fused::attention_forward(part, fused::Results::GoOn, out, lse);
  }
  if (part.fused && library::supports_attention_part(part)) {
    return library::attention_part_forward(part, out, lse);
  }
  composite_forward(part, out, lse);
}

void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv) {
  const at::NoGradGuard no_grad;
  check(part.q, part.k, part.v, part.mask);
  if (part.fused && fused::supports_attention(part.q)) {
    return fused::attention_backward(part, fused::Results::GoOn, dout, out, lse, dq, dk,
                                     dv);
  }
  if (part.fused && library::supports_attention_part(part)) {
    return library::attention_part_backward(part, dout, out, lse, dq, dk, dv);
  }
  composite_backward(part, dout, out, lse, dq, dk, dv);
}

}  // namespace longhaul::ops
