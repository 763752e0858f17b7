#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "longhaul/ops/attention/backend.h"

// The shapes have B sequences, S queries, K keys (P cached ones before the queries' own)
// and Hq and Hkv heads. G is Hq / Hkv, D the head dim, n the queries of a block, and m
// the keys that a block can see.

namespace longhaul::ops {
namespace {

constexpr int64_t kQueryBlock = 256;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// [B, L, Hkv * G, D] -> [B, Hkv, G, L, D]
at::Tensor by_group(const at::Tensor& x, int64_t key_heads) {
  return x.view({x.size(0), x.size(1), key_heads, x.size(2) / key_heads, x.size(3)})
      .permute({0, 2, 3, 1, 4});
}

/// A block of queries, [from, from + n), with the m keys from `key` on that the block can
/// see.
struct Block {
  Block(const AttentionPart& of, int64_t first)
      : part(of), from(first), n(std::min(kQueryBlock, of.q.size(1) - first)) {
    const int64_t K = of.k().size(1);
    const auto among_keys = [&](int64_t end) { return std::clamp<int64_t>(end, 0, K); };
    const bool causal = of.problem.causal();
    key = causal ? among_keys(after() - n + 1 - of.problem.reach()) : 0;
    m = std::max<int64_t>(0, (causal ? among_keys(after()) : K) - key);
    q = rows(of.q);
    k = by_group(of.k().narrow(1, key, m), of.k().size(2));
    v = by_group(of.v().narrow(1, key, m), of.k().size(2));
  }
  const AttentionPart& part;
  int64_t from, n, key, m;
  at::Tensor q, k, v;  ///< [B, Hkv, G or 1, n or m, D]

  /// Returns the index, among the keys of the part, of the first query behind the block.
  int64_t after() const { return part.query_begin - part.key_begin + from + n; }

  /// Returns the block's rows of x [B, S, Hq, D], as [B, Hkv, G, n, D].
  at::Tensor rows(const at::Tensor& x) const {
    return by_group(x.narrow(1, from, n), part.k().size(2));
  }
  /// Returns the block's rows of lse [B, Hq, S], as [B, Hkv, G, n].
  at::Tensor rows_of_lse(const at::Tensor& lse) const {
    return lse.view({q.size(0), q.size(1), q.size(2), lse.size(2)}).narrow(3, from, n);
  }

  /// Returns the scores, capped and masked, fp32 [B, Hkv, G, n, m].
  at::Tensor scores() const {
    const double cap = part.problem.score_cap;
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2)).to(at::kFloat);
    scores.mul_(part.problem.scale_of<double>(q.size(4)));
    if (cap > 0.0) scores.div_(cap).tanh_().mul_(cap);
    return scores.masked_fill_(hidden(), kMinusInfinity);
  }

  /// Turns the gradient of capped scores into that of the scores before the cap, in
  /// place.
  void through_cap(const at::Tensor& capped, at::Tensor& gradient) const {
    const double cap = part.problem.score_cap;
    // Hidden scores are minus infinity, and the clamp makes them finite. They have no
    // gradient.
    if (cap > 0.0) gradient.mul_(1.0 - capped.clamp_min(-cap).div_(cap).square_());
  }

  /// Returns which keys a query does not see, [n, m] or [B, 1, 1, n, m].
  at::Tensor hidden() const {
    const AttentionProblem& problem = part.problem;
    const at::Tensor& start = problem.document_start;
    const auto index = at::TensorOptions().dtype(at::kInt).device(q.device());
    const at::Tensor keys = at::arange(key, key + m, index);
    const auto among_keys = [&](const at::Tensor& bound) {
      return (bound.narrow(1, from, n) - part.key_begin).unsqueeze(2);
    };
    at::Tensor out;
    if (problem.causal()) {
      const at::Tensor last = at::arange(after() - n, after(), index).unsqueeze(1);
      out = keys > last;
      if (problem.reach() < after()) out = out.logical_or(keys <= last - *problem.window);
    } else {
      out = keys >= among_keys(problem.document_end);
    }
    if (start.defined()) out = out.logical_or(keys < among_keys(start));
    return out.dim() == 2 ? out : out.view({q.size(0), 1, 1, n, m});
  }

  /// Returns the dropout factors of probabilities, fp32 [B, Hkv, G, n, m].
  at::Tensor factors() const {
    const Dropout& draws = part.problem.dropout;
    const auto index = at::TensorOptions().dtype(at::kLong).device(q.device());
    const int64_t row = part.query_begin + from;
    const int64_t heads = part.q.size(2);
    return dropout_factors(draws, draws.sequences.view({-1, 1, 1, 1}),
                           at::arange(row, row + n, index).view({n, 1}),
                           at::arange(draws.first_head, draws.first_head + heads, index)
                               .view({heads, 1, 1}),
                           part.key_begin + key, m)
        .view({q.size(0), q.size(1), q.size(2), n, m});
  }
};

/// Calls `body` for each block of queries that can see keys.
template <typename Body>
void for_blocks(const AttentionPart& part, const Body& body) {
  for (int64_t from = 0; from < part.q.size(1); from += kQueryBlock) {
    const Block block(part, from);
    if (block.m > 0) body(block);
  }
}

/// Returns lse with 0 for minus infinity, the value of a row without keys, so that
/// e^(score - lse) of such a row is 0 instead of NaN.
at::Tensor finite(const at::Tensor& lse) {
  return lse.masked_fill(lse == kMinusInfinity, 0.0);
}

void part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  for_blocks(part, [&](const Block& b) {
    const at::Tensor scores = b.scores();
    const at::Tensor before = b.rows_of_lse(lse);
    const at::Tensor now = at::logaddexp(before, at::logsumexp(scores, -1));
    const at::Tensor base = finite(now);
    at::Tensor p = at::exp(scores - base.unsqueeze(-1));
    if (part.problem.dropout.drops()) p.mul_(b.factors());
    b.rows(out)
        .mul_(at::exp(before - base).unsqueeze(-1))
        .add_(at::matmul(p.to(part.q.scalar_type()), b.v));
    before.copy_(now);
  });
}

void part_backward(const AttentionPart& part, const at::Tensor& dout,
                   const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                   const KeptPositions& gradients) {
  const auto type = part.q.scalar_type();
  for_blocks(part, [&](const Block& b) {
    const at::Tensor scores = b.scores();
    at::Tensor p = at::exp(scores - finite(b.rows_of_lse(lse)).unsqueeze(-1));
    const at::Tensor dy = b.rows(dout), y = b.rows(out);
    const at::Tensor delta =
        (dy.to(at::kFloat) * y.to(at::kFloat)).sum({-1}, /*keepdim=*/true);
    at::Tensor dp = at::matmul(dy, b.v.transpose(-1, -2)).to(at::kFloat);
    at::Tensor factors;
    if (part.problem.dropout.drops()) {
      factors = b.factors();
      dp = dp * factors;
    }
    at::Tensor ds = (p * (dp - delta)).mul_(part.problem.scale_of<double>(b.q.size(4)));
    b.through_cap(scores, ds);
    ds = ds.to(type);
    if (factors.defined()) p.mul_(factors);
    b.rows(dq).add_(at::matmul(ds, b.k));
    // The gradients of a key head add up over the query heads of its group.
    const auto add = [&](const at::Tensor& sum, const at::Tensor& share) {
      sum.permute({0, 2, 1, 3}).narrow(2, b.key, b.m).add_(share.sum({2}));
    };
    add(gradients[0], at::matmul(ds.transpose(-1, -2), b.q));
    add(gradients[1], at::matmul(p.to(type).transpose(-1, -2), dy));
  });
}

Attended composite_forward(const AttentionPart& part) {
  const at::Tensor& q = part.q;
  const auto fp32 = q.options().dtype(at::kFloat);
  auto sizes = q.sizes().vec();
  sizes.back() = part.v().size(3);
  at::Tensor sum = at::zeros(sizes, fp32);
  at::Tensor lse = at::full({q.size(0), q.size(2), q.size(1)}, kMinusInfinity, fp32);
  part_forward(part, sum, lse);
  return {sum.to(q.scalar_type()), lse};
}

AttentionGradients composite_backward(const AttentionPart& part, const at::Tensor& dout,
                                      const Attended& forward) {
  const auto zeros = [](const at::Tensor& x) {
    return at::zeros_like(x, x.options().dtype(at::kFloat), at::MemoryFormat::Contiguous);
  };
  at::Tensor dq = zeros(part.q);
  const KeptPositions d = each_of(part.kept, zeros);
  part_backward(part, dout.contiguous(), forward.out, forward.lse, dq, d);
  const auto type = part.q.scalar_type();
  return {dq.to(type), d[0].to(type), d[1].to(type)};
}

}  // namespace

const AttentionBackend kComposite{"operations of LibTorch",
                                  [](const AttentionPart&) { return true; },
                                  composite_forward,
                                  composite_backward,
                                  part_forward,
                                  part_backward};

}  // namespace longhaul::ops
