#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>

#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/kernels/cpu.h"
#include "longhaul/ops/linear/side_by_side.h"

namespace longhaul::ops {
namespace {

using fused::Memory;
using kernels::Results;

kernels::AttentionShape shape_of(const AttentionPart& part) {
  const AttentionProblem& problem = part.problem;
  const Dropout& dropout = problem.dropout;
  kernels::AttentionShape shape{part.q.size(0),
                                part.q.size(1),
                                part.k().size(1),
                                part.q.size(2),
                                part.k().size(2),
                                part.q.size(3),
                                part.query_begin - part.key_begin,
                                problem.scale_of<float>(part.q.size(3)),
                                Memory(problem.document_start),
                                part.key_begin,
                                problem.reach(),
                                Memory(problem.document_end)};
  if (dropout.drops()) {
    shape.dropout = {{dropout.key, dropout.threshold(), dropout.scale()},
                     Memory(dropout.sequences),
                     dropout.first_head};
  }
  return shape;
}

kernels::AttentionStrides strides_of(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

template <Results kResults>
void run_kernel(const AttentionPart& part, const at::Tensor& out, const at::Tensor& lse) {
  fused::with_type(part.q, [&]<typename T>(T) {
    kernels::run(
        kernels::AttentionForward<T, kResults>{shape_of(part),
                                               {Memory(part.q), strides_of(part.q)},
                                               {Memory(part.k()), strides_of(part.k())},
                                               {Memory(part.v()), strides_of(part.v())},
                                               {Memory(out), strides_of(out)},
                                               Memory(lse)});
  });
}

template <Results kResults>
void run_kernel(const AttentionPart& part, const at::Tensor& dout, const at::Tensor& out,
                const at::Tensor& lse, const at::Tensor& dq, const at::Tensor& dk,
                const at::Tensor& dv) {
  fused::with_type(part.q, [&]<typename T>(T) {
    kernels::run(
        kernels::AttentionBackward<T, kResults>{shape_of(part),
                                                {Memory(part.q), strides_of(part.q)},
                                                {Memory(part.k()), strides_of(part.k())},
                                                {Memory(part.v()), strides_of(part.v())},
                                                {Memory(out), strides_of(out)},
                                                {Memory(dout), strides_of(dout)},
                                                Memory(lse),
                                                {Memory(dq), strides_of(dq)},
                                                {Memory(dk), strides_of(dk)},
                                                {Memory(dv), strides_of(dv)}});
  });
}

bool own_takes(const AttentionPart& part) {
  const at::Tensor& q = part.q;
  return q.is_cpu() && fused::has_element_type(q) &&
         kernels::attention_supported(q.size(3)) && part.v().size(3) == q.size(3) &&
         part.problem.score_cap == 0.0 &&
         !(part.problem.dropout.sequences.defined() &&
           part.problem.dropout.sequences.dim() == 2);
}

Attended own_forward(const AttentionPart& part) {
  const at::Tensor& q = part.q;
  const Attended result{
      at::empty_like(q, at::MemoryFormat::Contiguous),
      at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat))};
  RECORD_FUNCTION("longhaul::attention_forward", {});
  run_kernel<Results::Replace>(part, result.out, result.lse);
  return result;
}

AttentionGradients own_backward(const AttentionPart& part, const at::Tensor& dout,
                                const Attended& forward) {
  AttentionGradients d =
      ColumnLayout({part.q, part.k(), part.v()}).empty(part.q.options());
  const at::Tensor rows = dout.contiguous();
  RECORD_FUNCTION("longhaul::attention_backward", {});
  run_kernel<Results::Replace>(part, rows, forward.out, forward.lse, d[0], d[1], d[2]);
  return d;
}

void own_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  RECORD_FUNCTION("longhaul::attention_part_forward", {});
  run_kernel<Results::GoOn>(part, out, lse);
}

void own_part_backward(const AttentionPart& part, const at::Tensor& dout,
                       const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                       const KeptPositions& gradients) {
  RECORD_FUNCTION("longhaul::attention_part_backward", {});
  run_kernel<Results::GoOn>(part, dout, out, lse, dq, gradients[0], gradients[1]);
}

}  // namespace

const AttentionBackend kOwnKernels{"own",        own_takes,        own_forward,
                                   own_backward, own_part_forward, own_part_backward};

}  // namespace longhaul::ops
