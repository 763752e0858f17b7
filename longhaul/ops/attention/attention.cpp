#include "longhaul/ops/attention/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/common/node.h"

namespace longhaul::ops {
namespace {

/// Throws Error (Internal) if members of the part contradict each other.
void check(const AttentionPart& part) {
  const at::Tensor &q = part.q, &k = part.k(), &v = part.v();
  const AttentionProblem& problem = part.problem;
  LH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 &&
               v.sizes().slice(0, 3) == k.sizes().slice(0, 3) && q.size(0) == k.size(0) &&
               q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
           "attention",
           "queries of {} heads and length {}, keys of {} heads and length {}", q.size(2),
           q.size(1), k.size(2), k.size(1));
  LH_CHECK(problem.reach() > 0, "attention", "a window of {} keys", problem.reach());
  const auto fits = [&](const at::Tensor& of_queries) {
    return !of_queries.defined() ||
           (of_queries.sizes() == q.sizes().slice(0, 2) && of_queries.is_contiguous());
  };
  LH_CHECK(fits(problem.document_start) && fits(problem.document_end), "attention",
           "starts or ends of documents that are not contiguous [{}, {}]", q.size(0),
           q.size(1));
  LH_CHECK(problem.causal() || !problem.window, "attention",
           "a window of {} keys where queries see later keys", problem.reach());
  const auto of_scores = static_cast<float>(problem.scale.value_or(1.0));
  LH_CHECK(std::isfinite(of_scores) && of_scores > 0.0F, "attention",
           "the scale of attention scores is {}; it must be finite and above 0 in fp32",
           problem.scale.value_or(0.0));
  LH_CHECK(std::isfinite(problem.score_cap) && problem.score_cap >= 0.0, "attention",
           "attention scores are capped at {}", problem.score_cap);
  const Dropout& dropout = problem.dropout;
  const auto numbers = [&](at::ScalarType type, int64_t dims) {
    return dropout.sequences.scalar_type() == type && dropout.sequences.dim() == dims;
  };
  LH_CHECK(
      !dropout.drops() || (dropout.probability < 1.0 && dropout.sequences.defined() &&
                           dropout.sequences.size(0) == q.size(0) &&
                           (numbers(at::kLong, 1) || numbers(at::kInt, 2)) &&
                           dropout.sequences.is_contiguous()),
      "attention",
      "dropout of {} without the numbers of {} sequences (int64, or two words)",
      dropout.probability, q.size(0));
}

/// Returns all keys as one part; the last S keys belong to the queries, unless the
/// problem says where the queries begin.
AttentionPart all_keys(const at::Tensor& q, const KeptPositions& kept,
                       const AttentionProblem& problem, bool fused) {
  const int64_t begin = problem.query_begin.value_or(kept[0].size(1) - q.size(1));
  return {q, kept, problem, begin, 0, fused, /*whole=*/true};
}

/// What the backward needs besides tensors.
using AttentionTask = std::pair<AttentionProblem, const AttentionBackend*>;

struct AttentionNode : Function<AttentionNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            AttentionTask task) {
    const auto& [problem, backend] = task;
    Attended result = backend->forward(all_keys(q, {k, v}, problem, true));
    ctx->save_for_backward({q, k, v, result.out, result.lse, result.rng, result.unused});
    save(ctx, std::move(task));
    return result.out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto& [problem, backend] = saved<AttentionTask>(ctx);
    tensor_list d = backend->backward(all_keys(t[0], {t[1], t[2]}, problem, true),
                                      grads[0], {t[3], t[4], t[5], t[6]});
    d.emplace_back();
    return d;
  }
};

}  // namespace

const AttentionBackend& backend_of(const AttentionPart& part) {
  for (const AttentionBackend* backend :
       {&kOwnKernels, &kCudnn, &kFlash, &kOverrideable}) {
    if (part.fused && backend->takes(part)) return *backend;
  }
  return kNarrow.takes(part) ? kNarrow : kComposite;
}

std::string describe_attention(const AttentionScores& scores, int64_t head_dim,
                               double dropout, at::ScalarType type, at::Device device) {
  // Only sizes, dtype and device of the tensor matter. The part holds a whole sequence.
  // The name of cuDNN's backend also says which backend computes other sequences.
  const at::Tensor q = at::empty({1}, at::TensorOptions(type).device(device))
                           .expand({1, 256, 1, head_dim});
  AttentionPart part = all_keys(q, {q, q}, {scores}, true);
  part.problem.window.reset();
  part.problem.dropout.probability = dropout;
  const AttentionBackend& backend = backend_of(part);
  const bool could = !device.is_cpu() && type != at::kFloat;
  const std::string why = &backend == &kComposite && could ? flash_obstacle(device) : "";
  return why.empty() ? backend.name : fmt::format("{} ({})", backend.name, why);
}

at::Tensor attention(const at::Tensor& q, const KeptPositions& kept,
                     const AttentionProblem& problem, bool fused) {
  const AttentionPart part = all_keys(q, kept, problem, fused);
  check(part);
  LH_CHECK(part.k().size(1) >= q.size(1), "attention", "{} queries, but {} keys",
           q.size(1), part.k().size(1));
  return AttentionNode::apply(q, part.k(), part.v(),
                              AttentionTask{problem, &backend_of(part)});
}

bool attention_part_takes_rows(const AttentionPart& part) {
  return &backend_of(part) == &kFlash;
}

void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  const at::NoGradGuard no_grad;
  check(part);
  backend_of(part).part_forward(part, out, lse);
}

void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             const KeptPositions& gradients) {
  const at::NoGradGuard no_grad;
  check(part);
  backend_of(part).part_backward(part, dout, out, lse, dq, gradients);
}

}  // namespace longhaul::ops
