#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>

#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/fused/library_op.h"

// Shapes: B sequences, S queries and keys, Hq and Hkv heads, D head dim. The operator's
// tensors are [B, heads, S, D].

namespace longhaul::ops {
namespace {

const LibraryOp kOverrideableForward(
    "aten::_scaled_dot_product_fused_attention_overrideable", "",
    "query key value attn_bias dropout_p is_causal return_debug_mask scale");
const LibraryOp kOverrideableBackward(
    "aten::_scaled_dot_product_fused_attention_overrideable_backward", "",
    "grad_out query key value attn_bias grad_input_mask out logsumexp cum_seq_q "
    "cum_seq_k max_q max_k dropout_p is_causal philox_seed philox_offset scale");

bool overrideable_takes(const AttentionPart& part) {
  const at::Tensor &q = part.q, &k = part.k();
  const AttentionProblem& problem = part.problem;
  return q.device().type() == c10::DeviceType::PrivateUse1 && part.whole &&
         problem.causal() && !problem.document_start.defined() &&
         problem.reach() >= k.size(1) && problem.score_cap == 0.0 &&
         !problem.dropout.drops() && k.size(1) == q.size(1) &&
         part.query_begin == part.key_begin && part.v().size(3) == q.size(3) &&
         obstacle_of(q.device(), kOverrideableForward, kOverrideableBackward).empty();
}

at::Tensor heads_first(const at::Tensor& x) { return x.detach().transpose(1, 2); }

void add_call(LibraryArguments& arguments, const AttentionPart& part) {
  arguments.insert(arguments.end(),
                   {{"query", heads_first(part.q)},
                    {"key", heads_first(part.k())},
                    {"value", heads_first(part.v())},
                    {"dropout_p", 0.0},
                    {"is_causal", true},
                    {"scale", part.problem.scale_of<double>(part.q.size(3))}});
}

Attended overrideable_forward(const AttentionPart& part) {
  // A kernel may leave out the log-sum-exp where no gradient can follow. The inputs are
  // detached, so that no graph is made.
  const at::AutoGradMode grad_mode(true);
  LibraryArguments arguments = {{"attn_bias", c10::IValue()},
                                {"return_debug_mask", false}};
  add_call(arguments, part);
  const auto results = kOverrideableForward.call(std::move(arguments));
  return {results[0].toTensor().transpose(1, 2).contiguous(), results[1].toTensor(),
          results[6].toTensor(), results[7].toTensor()};
}

AttentionGradients overrideable_backward(const AttentionPart& part,
                                         const at::Tensor& dout,
                                         const Attended& forward) {
  LibraryArguments arguments = {
      {"grad_out", heads_first(dout)},
      {"attn_bias", at::Tensor()},
      {"grad_input_mask", c10::List<bool>({true, true, true, false})},
      {"out", heads_first(forward.out)},
      {"logsumexp", forward.lse},
      {"cum_seq_q", at::Tensor()},
      {"cum_seq_k", at::Tensor()},
      {"max_q", part.q.size(1)},
      {"max_k", part.k().size(1)},
      {"philox_seed", forward.rng},
      {"philox_offset", forward.unused}};
  add_call(arguments, part);
  const auto results = kOverrideableBackward.call(std::move(arguments));
  AttentionGradients d;
  for (const size_t i : {0, 1, 2}) d.push_back(results[i].toTensor().transpose(1, 2));
  return d;
}

}  // namespace

const AttentionBackend kOverrideable{"the device's own",
                                     overrideable_takes,
                                     overrideable_forward,
                                     overrideable_backward,
                                     nullptr,
                                     nullptr};

}  // namespace longhaul::ops
