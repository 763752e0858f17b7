#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/attention/backend.h"
#include "longhaul/ops/fused/library_op.h"

// Shapes: B sequences, S tokens, Hq and Hkv heads, D head dim.

namespace longhaul::ops {
namespace {

const LibraryOp kCudnnForward("aten::_scaled_dot_product_cudnn_attention", "",
                              "query key value attn_bias dropout_p compute_log_sumexp "
                              "is_causal scale return_debug_mask");
const LibraryOp kCudnnBackward(
    "aten::_scaled_dot_product_cudnn_attention_backward", "",
    "grad_out query key value out logsumexp max_q philox_seed philox_offset attn_bias "
    "cum_seq_q cum_seq_k max_k dropout_p is_causal scale");

constexpr int64_t kShortest = 256;
constexpr int64_t kMultiple = 64;
constexpr int64_t kMostHeadDim = 128;

/// Returns [B, S, H, D] as [B, H, S, D], which the operators take; nothing is copied.
at::Tensor by_heads(const at::Tensor& x) { return x.transpose(1, 2); }

/// Returns whether cuDNN has no kernel for the call. Any other failure may be a fault of
/// the device.
bool is_refusal(const std::string& text) {
  return text.find("execution plans") != std::string::npos ||
         text.find("NOT_SUPPORTED") != std::string::npos;
}

std::vector<c10::IValue> run_cudnn(const LibraryOp& op, const AttentionPart& part,
                                   LibraryArguments arguments) {
  arguments.insert(arguments.end(),
                   {{"query", by_heads(part.q)},
                    {"key", by_heads(part.k())},
                    {"value", by_heads(part.v())},
                    {"dropout_p", 0.0},
                    {"is_causal", true},
                    {"scale", part.problem.scale_of<double>(part.q.size(3))}});
  try {
    return op.call(std::move(arguments));
  } catch (const c10::Error& error) {
    if (!is_refusal(error.what_without_backtrace())) throw;
    fail_config("attention",
                "cuDNN refuses queries [{}] and keys [{}]: {}; set run.deterministic "
                "= true to use LibTorch's flash kernels",
                fmt::join(part.q.sizes(), ", "), fmt::join(part.k().sizes(), ", "),
                error.what_without_backtrace());
  }
}

bool cudnn_takes(const AttentionPart& part) {
  const AttentionProblem& problem = part.problem;
  const int64_t S = part.q.size(1), D = part.q.size(3);
  return part.whole && part.k().size(1) == S && S >= kShortest && S % kMultiple == 0 &&
         D <= kMostHeadDim && !problem.window && !problem.document_start.defined() &&
         problem.causal() && !problem.documents.bounds.defined() &&
         !at::globalContext().deterministicAlgorithms() && kFlash.takes(part) &&
         obstacle_of(part.q.device(), kCudnnForward, kCudnnBackward).empty();
}

Attended cudnn_forward(const AttentionPart& part) {
  const auto results = run_cudnn(kCudnnForward, part,
                                 {{"attn_bias", c10::IValue()},
                                  {"compute_log_sumexp", true},
                                  {"return_debug_mask", false}});
  // The results are output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed,
  // philox_offset.
  return {by_heads(results[0].toTensor()).contiguous(), results[1].toTensor(),
          results[6].toTensor(), results[7].toTensor()};
}

AttentionGradients cudnn_backward(const AttentionPart& part, const at::Tensor& dout,
                                  const Attended& forward) {
  const auto results = run_cudnn(kCudnnBackward, part,
                                 {{"grad_out", by_heads(dout.contiguous())},
                                  {"out", by_heads(forward.out)},
                                  {"logsumexp", forward.lse},
                                  {"philox_seed", forward.rng},
                                  {"philox_offset", forward.unused},
                                  {"attn_bias", at::Tensor()},
                                  {"cum_seq_q", at::Tensor()},
                                  {"cum_seq_k", at::Tensor()},
                                  {"max_q", part.q.size(1)},
                                  {"max_k", part.k().size(1)}});
  return {by_heads(results[0].toTensor()), by_heads(results[1].toTensor()),
          by_heads(results[2].toTensor())};
}

}  // namespace

const AttentionBackend kCudnn{
    "cuDNN where causality alone hides keys, else LibTorch's flash kernels",
    cudnn_takes,
    cudnn_forward,
    cudnn_backward,
    nullptr,
    nullptr};

}  // namespace longhaul::ops
