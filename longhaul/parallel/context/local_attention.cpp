#include "longhaul/parallel/context/local_attention.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "longhaul/base/error.h"

namespace longhaul::parallel {

/// A chunk of queries and a chunk of keys that some of them may see by its position.
struct LocalAttention::Pair {
  int64_t number;  ///< of the chunk of queries
  ContextChunk queries, keys;

  at::Tensor of_queries(const at::Tensor& x) const {
    return x.narrow(1, queries.local, queries.length);
  }
  at::Tensor of_keys(const at::Tensor& x) const {
    return x.narrow(1, keys.local, keys.length);
  }
  ops::AttentionPart part(const at::Tensor& q, const KeyValues& kv,
                          const ops::AttentionMask& mask, bool fused) const {
    const auto bound = [&](const at::Tensor& x) {
      return x.defined() ? of_queries(x).contiguous() : x;
    };
    return {
        of_queries(q),
        of_keys(kv.keys),
        of_keys(kv.values),
        {bound(mask.document_start), mask.window, bound(mask.document_end), mask.dropout},
        queries.begin,
        keys.begin,
        fused};
  }
};

LocalAttention::LocalAttention(const ContextLayout& layout, int rank, const at::Tensor& q,
                               const ops::AttentionMask& mask, bool fused)
    : layout_(layout), mine_(layout.chunks(rank)), q_(q), mask_(mask), fused_(fused) {
  const auto fits = [&](const at::Tensor& x) {
    return !x.defined() ||
           (x.dim() == 2 && x.size(0) == q.size(0) && x.size(1) == q.size(1));
  };
  LH_CHECK(q.dim() == 4 && q.size(1) == layout.local_len(), "context",
           "{} queries of {} dims, but each rank has {} positions", q.size(1), q.dim(),
           layout.local_len());
  LH_CHECK(fits(mask.document_start) && fits(mask.document_end), "context",
           "document starts or ends that are not [{}, {}]", q.size(0), q.size(1));
}

std::vector<LocalAttention::Pair> LocalAttention::pairs(int source) const {
  std::vector<Pair> out;
  for (size_t i = 0; i < mine_.size(); ++i) {
    for (const ContextChunk& keys : layout_.chunks(source)) {
      // Chunks are as long as each other: the first query and the last key are nearest.
      const int64_t distance = mine_[i].begin - (keys.begin + keys.length - 1);
      const bool near = keys.begin <= mine_[i].begin && distance < mask_.window;
      if (near || mask_.document_end.defined()) {
        out.push_back({static_cast<int64_t>(i), mine_[i], keys});
      }
    }
  }
  return out;
}

AttentionSums LocalAttention::begin() const {
  const auto fp32 = q_.options().dtype(at::kFloat);
  const auto count = static_cast<int64_t>(mine_.size());
  return {at::zeros(q_.sizes(), fp32),
          at::full({count, q_.size(0), q_.size(2), mine_[0].length},
                   -std::numeric_limits<float>::infinity(), fp32)};
}

void LocalAttention::forward(int source, const KeyValues& of_source, AttentionSums& sums,
                             const std::function<void()>& between) const {
  for (const Pair& pair : pairs(source)) {
    at::Tensor out = pair.of_queries(sums.out);
    at::Tensor lse = sums.lse.select(0, pair.number);
    ops::attention_part_forward(pair.part(q_, of_source, mask_, fused_), out, lse);
    between();
  }
}

void LocalAttention::backward(int source, const KeyValues& of_source,
                              const at::Tensor& dout, const at::Tensor& out,
                              const at::Tensor& lse, at::Tensor& dq, KeyValues& gradients,
                              const std::function<void()>& between) const {
  for (const Pair& pair : pairs(source)) {
    at::Tensor dqueries = pair.of_queries(dq);
    at::Tensor dkeys = pair.of_keys(gradients.keys);
    at::Tensor dvalues = pair.of_keys(gradients.values);
    ops::attention_part_backward(pair.part(q_, of_source, mask_, fused_),
                                 pair.of_queries(dout), pair.of_queries(out),
                                 lse.select(0, pair.number), dqueries, dkeys, dvalues);
    between();
  }
}

KeyValues zero_gradients(const KeyValues& of) {
  const auto zeros = [](const at::Tensor& x) {
    return at::zeros_like(x, x.options().dtype(at::kFloat), at::MemoryFormat::Contiguous);
  };
  return {zeros(of.keys), zeros(of.values)};
}

}  // namespace longhaul::parallel
