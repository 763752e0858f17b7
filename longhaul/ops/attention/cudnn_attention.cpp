#include "longhaul/ops/attention/cudnn_attention.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused/library_op.h"

// Shapes: B sequences, S tokens, Hq and Hkv heads, D head dim.

namespace longhaul::ops::library {
namespace {

const LibraryOp kCudnnForward("aten::_scaled_dot_product_cudnn_attention", "",
                              "query key value attn_bias dropout_p compute_log_sumexp "
                              "is_causal scale return_debug_mask");
const LibraryOp kCudnnBackward(
    "aten::_scaled_dot_product_cudnn_attention_backward", "",
    "grad_out query key value out logsumexp max_q philox_seed "
    "philox_offset attn_bias cum_seq_q cum_seq_k max_k dropout_p "
    "is_causal scale");

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

std::vector<c10::IValue> run(const LibraryOp& op, LibraryArguments arguments,
                             const at::Tensor& q, const at::Tensor& k, double scale) {
  arguments.insert(arguments.end(),
                   {{"dropout_p", 0.0}, {"is_causal", true}, {"scale", scale}});
  try {
    return op.call(std::move(arguments));
  } catch (const c10::Error& error) {
    if (!is_refusal(error.what_without_backtrace())) throw;
    throw ConfigError(
        "attention",
        fmt::format("cuDNN refuses queries [{}] and keys [{}]: {}; set run.deterministic "
                    "= true to use LibTorch's flash kernels",
                    fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "),
                    error.what_without_backtrace()));
  }
}

}  // namespace

std::string cudnn_obstacle(at::Device device) {
  return obstacle_of(device, kCudnnForward, kCudnnBackward);
}

bool takes_cudnn(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  const int64_t S = q.size(1), D = q.size(3);
  return k.size(1) == S && S >= kShortest && S % kMultiple == 0 && D <= kMostHeadDim &&
         D % 8 == 0 && mask.window == kNoWindow && !mask.document_start.defined() &&
         !mask.document_end.defined() && !mask.documents.bounds.defined() &&
         !at::globalContext().deterministicAlgorithms() &&
         cudnn_obstacle(q.device()).empty();
}

Attended cudnn_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       double scale) {
  const auto results = run(kCudnnForward,
                           {{"query", by_heads(q)},
                            {"key", by_heads(k)},
                            {"value", by_heads(v)},
                            {"attn_bias", c10::IValue()},
                            {"compute_log_sumexp", true},
                            {"return_debug_mask", false}},
                           q, k, scale);
  // The results are output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed,
  // philox_offset.
  return {by_heads(results[0].toTensor()).contiguous(), results[1].toTensor(),
          results[6].toTensor(), results[7].toTensor()};
}

AttentionGradients cudnn_backward(const at::Tensor& dout, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v, double scale,
                                  const Attended& forward) {
  const auto results = run(kCudnnBackward,
                           {{"grad_out", by_heads(dout.contiguous())},
                            {"query", by_heads(q)},
                            {"key", by_heads(k)},
                            {"value", by_heads(v)},
                            {"out", by_heads(forward.out)},
                            {"logsumexp", forward.lse},
                            {"philox_seed", forward.rng},
                            {"philox_offset", forward.unused},
                            {"attn_bias", at::Tensor()},
                            {"cum_seq_q", at::Tensor()},
                            {"cum_seq_k", at::Tensor()},
                            {"max_q", q.size(1)},
                            {"max_k", k.size(1)}},
                           q, k, scale);
  return {by_heads(results[0].toTensor()), by_heads(results[1].toTensor()),
          by_heads(results[2].toTensor())};
}

}  // namespace longhaul::ops::library
