#include "longhaul/parallel/context/local_attention.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::parallel {

/// A chunk of queries and a chunk of keys, where the positions let some of the queries
/// see some of the keys. Queries and keys may also be several joined chunks.
struct LocalAttention::Pair {
  int64_t number;  ///< number of the chunk of queries; 0 for joined chunks
  layout::ContextChunk queries, keys;

  at::Tensor of_queries(const at::Tensor& x) const {
    return x.defined() ? x.narrow(1, queries.local, queries.length) : x;
  }
  KeptPositions of_keys(const KeptPositions& kept) const {
    return each_of(kept,
                   [&](const auto& x) { return x.narrow(1, keys.local, keys.length); });
  }
  ops::AttentionPart part(const at::Tensor& q, const KeptPositions& kept,
                          const ops::AttentionProblem& problem, bool fused) const {
    const auto bound = [&](const at::Tensor& x) {
      return x.defined() ? of_queries(x).contiguous() : x;
    };
    ops::AttentionProblem of_pair = problem;
    of_pair.document_start = bound(problem.document_start);
    of_pair.document_end = bound(problem.document_end);
    of_pair.documents = {};  // holds bounds of whole sequences
    return {of_queries(q), of_keys(kept), std::move(of_pair),
            queries.begin, keys.begin,    fused};
  }
};

LocalAttention::LocalAttention(const layout::ContextLayout& layout, int rank,
                               const at::Tensor& q, const ops::AttentionProblem& problem,
                               bool fused)
    : layout_(layout),
      mine_(layout.chunks(rank)),
      q_(q),
      problem_(problem),
      fused_(fused),
      joins_(!problem.window &&
             ops::attention_part_takes_rows(
                 {q, ops::KeptPositions(2, q), problem, 0, 0, fused})) {
  const auto fits = [&](const at::Tensor& x) {
    return !x.defined() ||
           (x.dim() == 2 && x.size(0) == q.size(0) && x.size(1) == q.size(1));
  };
  LH_CHECK(q.dim() == 4 && q.size(1) == layout.local_len(), "context",
           "{} queries of {} dims, but each rank has {} positions", q.size(1), q.dim(),
           layout.local_len());
  LH_CHECK(fits(problem.document_start) && fits(problem.document_end), "context",
           "document starts or ends that are not [{}, {}]", q.size(0), q.size(1));
}

LocalAttention::Pair LocalAttention::joined(int source) const {
  const int64_t length = layout_.local_len();
  const layout::ContextChunk all{0, 0, length};
  // For the rank's own keys, the chunks of keys and those of queries are the same.
  const auto theirs = layout_.chunks(source);
  if (theirs.front().begin == mine_.front().begin) return {0, all, all};
  // All queries of the pair see all its keys, so that the kernel gets positions that
  // place the queries behind the keys. An earlier rank's first chunk lies before all
  // queries and its last chunk behind them. Both chunks of a later rank lie between this
  // rank's first and last chunk of queries.
  const bool earlier = theirs.front().begin < mine_.front().begin;
  const layout::ContextChunk& last = mine_.back();
  if (earlier) return {0, {length, 0, length}, {0, 0, theirs.front().length}};
  return {0, {length, last.local, last.length}, all};
}

std::vector<LocalAttention::Pair> LocalAttention::pairs(int source) const {
  if (joins_) return {joined(source)};
  std::vector<Pair> out;
  for (size_t i = 0; i < mine_.size(); ++i) {
    for (const layout::ContextChunk& keys : layout_.chunks(source)) {
      // Chunks are equally long: the first query is nearest to the last key.
      const int64_t distance = mine_[i].begin - (keys.begin + keys.length - 1);
      const bool near = keys.begin <= mine_[i].begin && distance < problem_.reach();
      if (near || !problem_.causal()) {
        out.push_back({static_cast<int64_t>(i), mine_[i], keys});
      }
    }
  }
  return out;
}

at::Tensor LocalAttention::lse_of(const Pair& pair, const at::Tensor& lse) const {
  if (!joins_) return lse.select(0, pair.number);
  return lse.defined() ? lse.narrow(2, pair.queries.local, pair.queries.length) : lse;
}

at::Tensor LocalAttention::begin_gradient() const {
  return joins_ ? at::Tensor() : at::zeros(q_.sizes(), q_.options().dtype(at::kFloat));
}

AttentionSums LocalAttention::begin() const {
  if (joins_) return {};
  const auto fp32 = q_.options().dtype(at::kFloat);
  const auto count = static_cast<int64_t>(mine_.size());
  return {at::zeros(q_.sizes(), fp32),
          at::full({count, q_.size(0), q_.size(2), mine_[0].length},
                   -std::numeric_limits<float>::infinity(), fp32)};
}

void LocalAttention::forward(int source, const KeptPositions& of_source,
                             AttentionSums& sums,
                             const std::function<void()>& between) const {
  for (const Pair& pair : pairs(source)) {
    at::Tensor out = pair.of_queries(sums.out);
    at::Tensor lse = lse_of(pair, sums.lse);
    ops::attention_part_forward(pair.part(q_, of_source, problem_, fused_), out, lse);
    if (!sums.out.defined()) sums = {out, lse};
    between();
  }
}

void LocalAttention::backward(int source, const KeptPositions& of_source,
                              const at::Tensor& dout, const at::Tensor& out,
                              const at::Tensor& lse, at::Tensor& dq,
                              const KeptPositions& gradients,
                              const std::function<void()>& between) const {
  for (const Pair& pair : pairs(source)) {
    at::Tensor dqueries = pair.of_queries(dq);
    ops::attention_part_backward(pair.part(q_, of_source, problem_, fused_),
                                 pair.of_queries(dout), pair.of_queries(out),
                                 lse_of(pair, lse), dqueries, pair.of_keys(gradients));
    if (!dq.defined()) dq = dqueries;
    between();
  }
}

KeptPositions zero_gradients(const KeptPositions& of) {
  return each_of(of, [](const at::Tensor& x) {
    return at::zeros_like(x, x.options().dtype(at::kFloat), at::MemoryFormat::Contiguous);
  });
}

}  // namespace longhaul::parallel
