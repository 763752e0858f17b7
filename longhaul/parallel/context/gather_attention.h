#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/comm/communicator.h"
#include "longhaul/ops/attention/attention.h"

namespace longhaul::parallel {

/// As ring_attention, but every rank gathers the keys and values of all at once (Meta,
/// "The Llama 3 Herd of Models", section 3.3.2): fewer and longer messages, more memory.
/// Good where keys are few (grouped queries) or the group is small. Keys are met in the
/// order of their ranks. The backward gathers them again and sums the gradients by a
/// reduce_scatter in fp32, in rank order. Collective, forward and backward.
///
/// Bytes that each of N ranks sends, with n = B * S * Hkv * D elements of e bytes:
/// forward 2 (N - 1) n e, backward 2 (N - 1) n (e + 4).
/// Memory: the keys and values of all N ranks, and in the backward an fp32 set of their
/// gradients.
at::Tensor gather_attention(comm::Communicator& group, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const ops::AttentionMask& mask, bool fused);

}  // namespace longhaul::parallel
