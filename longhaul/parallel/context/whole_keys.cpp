#include "longhaul/parallel/context/whole_keys.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/split_with_sizes.h>

#include <algorithm>

#include "longhaul/layout/context.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/tensor/buffer_of.h"
#include "longhaul/tensor/own_memory.h"

// Letters of shapes: N is the number of ranks of the cp group; local_attention.h explains
// the others.

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

layout::ContextLayout layout_of(const at::Tensor& local, comm::Communicator& cp) {
  return {local.size(1) * cp.size(), cp.size()};
}

/// Makes [B, N S, ...], in the order of the sequence, of this rank's [B, S, ...] and
/// those of the others.
struct WholeKeysNode : ops::Function<WholeKeysNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            comm::Communicator* cp) {
    ops::save(ctx, cp);
    const at::Tensor own = tensor::in_own_memory(x);
    auto sizes = own.sizes().vec();
    sizes.insert(sizes.begin(), cp->size());
    const at::Tensor all = at::empty(sizes, own.options());
    cp->all_gather(tensor::buffer_of(own), tensor::buffer_of(all))->order();
    const layout::ContextLayout layout = layout_of(own, *cp);
    std::vector<std::pair<int64_t, at::Tensor>> chunks;
    for (int rank = 0; rank < cp->size(); ++rank) {
      for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
        chunks.emplace_back(chunk.begin,
                            all.select(0, rank).narrow(1, chunk.local, chunk.length));
      }
    }
    std::ranges::sort(chunks, {}, [](const auto& chunk) { return chunk.first; });
    std::vector<at::Tensor> ordered;
    for (auto& [begin, chunk] : chunks) ordered.push_back(std::move(chunk));
    return at::cat(ordered, 1);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    comm::Communicator& cp = *ops::saved<comm::Communicator*>(ctx);
    const at::Tensor& whole = grads[0];
    const layout::ContextLayout layout(whole.size(1), cp.size());
    std::vector<at::Tensor> of_ranks;
    for (int rank = 0; rank < cp.size(); ++rank) {
      std::vector<at::Tensor> chunks;
      for (const layout::ContextChunk& chunk : layout.chunks(rank)) {
        chunks.push_back(whole.narrow(1, chunk.begin, chunk.length));
      }
      of_ranks.push_back(at::cat(chunks, 1).unsqueeze(0));
    }
    const at::Tensor all = at::cat(of_ranks).to(at::kFloat);
    const at::Tensor own = at::empty(all.sizes().slice(1), all.options());
    cp.reduce_scatter(tensor::buffer_of(all), tensor::buffer_of(own), comm::ReduceOp::Sum)
        ->order();
    return {own.to(whole.scalar_type()), Variable()};
  }
};

}  // namespace

at::Tensor whole_keys_attention(comm::Communicator& cp, const at::Tensor& q,
                                const ops::KeptPositions& kept,
                                const ops::AttentionProblem& problem, bool fused) {
  const ops::KeptPositions whole = ops::each_of(
      kept, [&](const at::Tensor& x) { return WholeKeysNode::apply(x, &cp); });
  const std::vector<layout::ContextChunk> mine = layout_of(q, cp).chunks(cp.rank());
  std::vector<int64_t> lengths;
  for (const layout::ContextChunk& chunk : mine) lengths.push_back(chunk.length);
  const std::vector<at::Tensor> queries = at::split_with_sizes(q, lengths, 1);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto of_queries = [&](const at::Tensor& bound) {
      return bound.defined() ? bound.narrow(1, mine[i].local, mine[i].length).contiguous()
                             : bound;
    };
    ops::AttentionProblem part = problem;
    part.document_start = of_queries(problem.document_start);
    part.document_end = of_queries(problem.document_end);
    part.documents = {};  // holds bounds of whole sequences
    part.query_begin = mine[i].begin;
    out.push_back(ops::attention(queries[i], whole, part, fused));
  }
  return at::cat(out, 1);
}

}  // namespace longhaul::parallel
