#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/narrow/narrow.h"

// The shapes have B sequences, S queries, K keys, and Hq and Hkv heads. G is Hq / Hkv, W
// the features of a head, n the queries of a block, and m the keys that a block is given.

namespace longhaul::ops {
namespace {

constexpr int64_t kNarrowQueries = 256;
constexpr float kNoScore = -std::numeric_limits<float>::infinity();

/// What all blocks of queries share. Each block but the last has the same shapes, and
/// places in the sequence are numbers that are added to tensors.
class NarrowAttention {
 public:
  explicit NarrowAttention(const AttentionPart& part)
      : part_(part),
        B_(part.q.size(0)),
        K_(part.k().size(1)),
        heads_(part.k().size(2)),
        group_(part.q.size(2) / heads_),
        k_(by_head(part.k())),
        v_(by_head(part.v())),
        scale_(part.problem.scale_of<double>(part.q.size(3))) {}

  struct Block {
    int64_t from, n;   ///< queries
    int64_t key, m;    ///< keys
    at::Tensor index;  ///< int32 [m]: the numbers of the keys
    at::Tensor q;      ///< [B Hkv, G n, W]
  };

  std::vector<Block> blocks() const {
    std::vector<Block> all;
    const AttentionProblem& problem = part_.problem;
    const int64_t S = part_.q.size(1);
    for (int64_t from = 0; from < S; from += kNarrowQueries) {
      Block b{from, std::min(kNarrowQueries, S - from), 0, K_, {}, {}};
      // With a window all blocks have equally many keys, which end at the last query.
      if (problem.window) b.m = std::min(K_, kNarrowQueries + *problem.window - 1);
      b.key = std::clamp<int64_t>(offset() + from + b.n - b.m, 0, K_ - b.m);
      b.index = counting(b.m) + b.key;
      b.q = rows(part_.q, b);
      all.push_back(std::move(b));
    }
    return all;
  }

  at::Tensor k(const Block& b) const { return of_block(k_, b); }
  at::Tensor v(const Block& b) const { return of_block(v_, b); }

  /// Returns the block's rows of x [B, S, Hq, W], as [B Hkv, G n, W].
  at::Tensor rows(const at::Tensor& x, const Block& b) const {
    return x.narrow(1, b.from, b.n)
        .reshape({B_, b.n, heads_, group_, x.size(3)})
        .permute({0, 2, 3, 1, 4})
        .reshape({B_ * heads_, group_ * b.n, x.size(3)});
  }
  /// Returns rows() as [B, n, Hq, W] again.
  at::Tensor back(const at::Tensor& rows, const Block& b) const {
    return rows.view({B_, heads_, group_, b.n, -1})
        .permute({0, 3, 1, 2, 4})
        .reshape({B_, b.n, heads_ * group_, -1});
  }
  /// Returns the block's rows of lse [B, Hq, S], as [B Hkv, G n, 1].
  at::Tensor rows_of_lse(const at::Tensor& lse, const Block& b) const {
    return lse.narrow(2, b.from, b.n).reshape({B_ * heads_, group_ * b.n, 1});
  }
  at::Tensor back_to_lse(const at::Tensor& rows, const Block& b) const {
    return rows.view({B_, heads_ * group_, b.n});
  }

  /// The scores of a block: capped and masked, fp32 [B Hkv, G n, m], and what the cap
  /// has left of the gradient, or undefined.
  struct Scores {
    at::Tensor scores, slope;
  };
  Scores scores(const Block& b) const {
    const double cap = part_.problem.score_cap;
    Scores out{at::bmm(b.q, k(b).transpose(1, 2)).to(at::kFloat) * scale_, {}};
    if (cap > 0.0) {
      const at::Tensor bounded = at::tanh(out.scores * (1.0 / cap));
      out.slope = bounded * bounded * -1.0 + 1.0;
      out.scores = bounded * cap;
    }
    out.scores = by_query(out.scores, b).masked_fill(hidden(b), kNoScore);
    out.scores = out.scores.view({B_ * heads_, group_ * b.n, b.m});
    return out;
  }

  /// Returns e^(score - lse), where lse is [B Hkv, G n, 1]. A row without keys has 0.
  static at::Tensor softmax(const at::Tensor& scores, const at::Tensor& lse) {
    return at::exp(scores - lse.masked_fill(lse == kNoScore, 0.0));
  }

  /// Returns the dropout factors of probabilities, fp32 [B Hkv, G n, m].
  at::Tensor factors(const Block& b) const {
    const Dropout& draws = part_.problem.dropout;
    std::vector<int64_t> of_sequences = {-1, 1, 1, 1};
    if (draws.sequences.dim() == 2) of_sequences.push_back(2);
    const int64_t Hq = heads_ * group_;
    return dropout_factors(draws, draws.sequences.view(of_sequences),
                           (counting(b.n) + (part_.query_begin + b.from)).unsqueeze(1),
                           (counting(Hq) + draws.first_head).view({Hq, 1, 1}),
                           part_.key_begin + b.key, b.m)
        .reshape({B_ * heads_, group_ * b.n, b.m});
  }
  bool drops() const { return part_.problem.dropout.drops(); }

  /// Adds the block's share of a gradient of keys or values, [B Hkv, m, W], to `sum`,
  /// fp32 [B Hkv, K, W].
  void add_share(at::Tensor& sum, const at::Tensor& share, const Block& b) const {
    const at::Tensor wide = share.to(at::kFloat);
    if (b.m < K_) {
      sum.index_add_(1, b.index, wide);
    } else {
      sum = sum.defined() ? sum + wide : wide;
    }
  }
  /// Returns the sum before the first share: undefined where a share has all keys.
  at::Tensor begin_sum(const at::Tensor& of) const {
    if (!part_.problem.window) return {};
    return at::zeros({B_ * heads_, K_, of.size(3)}, of.options().dtype(at::kFloat));
  }
  /// Returns [B Hkv, K, W] as [B, K, Hkv, W].
  at::Tensor back_to_keys(const at::Tensor& x) const {
    return x.view({B_, heads_, K_, -1}).permute({0, 2, 1, 3});
  }
  double scale() const { return scale_; }

 private:
  /// Returns the index of the first query among the keys.
  int64_t offset() const { return part_.query_begin - part_.key_begin; }

  /// Returns 0, 1, 2 ... below `count`, int32.
  at::Tensor counting(int64_t count) const {
    return at::arange(count, at::TensorOptions(at::kInt).device(part_.q.device()));
  }
  /// [B, K, Hkv, W] -> [B Hkv, K, W]
  at::Tensor by_head(const at::Tensor& x) const {
    return x.permute({0, 2, 1, 3}).reshape({B_ * heads_, K_, x.size(3)});
  }
  at::Tensor of_block(const at::Tensor& x, const Block& b) const {
    return b.m < K_ ? at::index_select(x, 1, b.index) : x;
  }
  at::Tensor by_query(const at::Tensor& x, const Block& b) const {
    return x.view({B_, heads_, group_, b.n, b.m});
  }

  /// Returns which keys a query does not see, [n, m] or [B, 1, 1, n, m].
  at::Tensor hidden(const Block& b) const {
    const AttentionProblem& problem = part_.problem;
    const auto among_keys = [&](const at::Tensor& bound) {
      return (bound.narrow(1, b.from, b.n) - part_.key_begin).unsqueeze(2);
    };
    at::Tensor out;
    if (problem.causal()) {
      const at::Tensor last = (counting(b.n) + (offset() + b.from)).unsqueeze(1);
      out = b.index > last;
      if (problem.window) out = out.logical_or(b.index <= last - *problem.window);
    } else {
      out = b.index >= among_keys(problem.document_end);
    }
    const at::Tensor& start = problem.document_start;
    if (start.defined()) out = out.logical_or(b.index < among_keys(start));
    return out.dim() == 2 ? out : out.view({B_, 1, 1, b.n, b.m});
  }

  const AttentionPart& part_;
  int64_t B_, K_, heads_, group_;
  at::Tensor k_, v_;
  double scale_;
};

Attended narrow_forward(const AttentionPart& part) {
  const NarrowAttention attention(part);
  std::vector<at::Tensor> out, lse;
  for (const NarrowAttention::Block& b : attention.blocks()) {
    const at::Tensor scores = attention.scores(b).scores;
    const at::Tensor sums = narrow::log_sum_exp(scores);
    at::Tensor p = NarrowAttention::softmax(scores, sums.unsqueeze(-1));
    if (attention.drops()) p = p * attention.factors(b);
    out.push_back(attention.back(at::bmm(p.to(part.q.scalar_type()), attention.v(b)), b));
    lse.push_back(attention.back_to_lse(sums, b));
  }
  return {at::cat(out, 1), at::cat(lse, 2)};
}

AttentionGradients narrow_backward(const AttentionPart& part, const at::Tensor& dout,
                                   const Attended& forward) {
  const NarrowAttention attention(part);
  const auto type = part.q.scalar_type();
  std::vector<at::Tensor> dq;
  at::Tensor dk = attention.begin_sum(part.k()), dv = attention.begin_sum(part.v());
  for (const NarrowAttention::Block& b : attention.blocks()) {
    const auto [scores, slope] = attention.scores(b);
    at::Tensor p =
        NarrowAttention::softmax(scores, attention.rows_of_lse(forward.lse, b));
    const at::Tensor dy = attention.rows(dout, b), y = attention.rows(forward.out, b);
    const at::Tensor delta =
        at::sum(dy.to(at::kFloat) * y.to(at::kFloat), {-1}, /*keepdim=*/true);
    at::Tensor dp = at::bmm(dy, attention.v(b).transpose(1, 2)).to(at::kFloat);
    at::Tensor factors;
    if (attention.drops()) {
      factors = attention.factors(b);
      dp = dp * factors;
    }
    at::Tensor ds = p * (dp - delta) * attention.scale();
    if (slope.defined()) ds = ds * slope;
    ds = ds.to(type);
    if (factors.defined()) p = p * factors;
    dq.push_back(attention.back(at::bmm(ds, attention.k(b)), b));
    attention.add_share(dk, at::bmm(ds.transpose(1, 2), b.q), b);
    attention.add_share(dv, at::bmm(p.to(type).transpose(1, 2), dy), b);
  }
  return {at::cat(dq, 1), attention.back_to_keys(dk.to(type)),
          attention.back_to_keys(dv.to(type))};
}

}  // namespace

const AttentionBackend kNarrow{
    "operations of LibTorch in 32 bits",
    [](const AttentionPart& part) { return narrow::is_on_narrow_device(part.q); },
    narrow_forward,
    narrow_backward,
    nullptr,
    nullptr};

}  // namespace longhaul::ops
