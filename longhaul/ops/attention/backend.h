#pragma once

#include <string>
#include <vector>

#include "longhaul/ops/common/attention_problem.h"

namespace longhaul::ops {

/// What a forward leaves for its backward: the result, the log-sum-exp, whose shape
/// depends on the kernel, and the kernel's random state, if it has one.
struct Attended {
  at::Tensor out;  ///< contiguous, [B, S, Hq, width of values], with the dtype of q
  at::Tensor lse;
  at::Tensor rng = {}, unused = {};
};

/// dq, dk and dv.
using AttentionGradients = std::vector<at::Tensor>;

/// One way to compute attention. The functions of ops/attention/attention.h use the first
/// backend that takes the part.
struct AttentionBackend {
  const char* name;  ///< for the log and the numerics fingerprint
  /// Returns whether the backend computes this part.
  bool (*takes)(const AttentionPart& part);
  // forward() and backward() take parts with all keys of their queries (`whole`).
  Attended (*forward)(const AttentionPart& part);
  AttentionGradients (*backward)(const AttentionPart& part, const at::Tensor& dout,
                                 const Attended& forward);
  // part_forward() and part_backward() do the work of attention_part_forward() and
  // attention_part_backward() (attention.h) for some of the keys at a time. Both are null
  // in a backend that has to have all keys.
  void (*part_forward)(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);
  void (*part_backward)(const AttentionPart& part, const at::Tensor& dout,
                        const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                        const KeptPositions& gradients);
};

/// Our own kernels, on a CPU (ops/kernels).
extern const AttentionBackend kOwnKernels;

/// The kernels of cuDNN through LibTorch's operators for them: causal, bf16 or fp16, all
/// queries with all keys. On an H200 they take 0.5 to 0.6 of the time of LibTorch's flash
/// kernels (docs/benchmarks.md). For each size cuDNN builds a plan, which takes about as
/// long as a step. For short sequences and odd lengths, as prompts have, a plan takes
/// more time than it saves. The kernels add gradients in no fixed order, and are
/// therefore not used if LibTorch is told to be deterministic. Throws ConfigError if
/// cuDNN refuses a call.
extern const AttentionBackend kCudnn;

/// LibTorch's own flash kernels (Dao, "FlashAttention-2") on devices that have these
/// kernels. They take bf16 and fp16, head dims that are multiples of 8 up to 256, and
/// grouped heads without copies of keys and values. They take neither dropout nor
/// capped scores nor documents whose bounds the host does not know.
extern const AttentionBackend kFlash;
/// Returns why the device lacks the flash kernels; empty if it has them.
std::string flash_obstacle(at::Device device);

/// The kernel that a device of a plug-in has for LibTorch's operator
/// `_scaled_dot_product_fused_attention_overrideable`: causal attention of whole
/// sequences without documents, windows, caps and dropout, with grouped heads.
extern const AttentionBackend kOverrideable;

/// Plain operations of LibTorch on any device, which take every part.
extern const AttentionBackend kComposite;

/// kComposite for devices without 64-bit numbers and without writes into views, which
/// takes every part that is `whole`. All blocks of queries have the same shapes, for
/// which keys that no query of a block sees are multiplied too. For other parts see
/// AttentionProblem::query_begin.
extern const AttentionBackend kNarrow;

/// Returns the first backend that takes the part.
const AttentionBackend& backend_of(const AttentionPart& part);

}  // namespace longhaul::ops
