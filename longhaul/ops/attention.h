#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// Causal grouped-query attention, softmax(q k^T / sqrt(D)) v, with the softmax in fp32.
/// q [B, S, Hq, D], k and v [B, P + S, Hkv, D]; Hq is a multiple of Hkv and consecutive
/// query heads share a key head; query i sees keys start(i) <= j <= P + i, where P is the
/// number of cached positions. `document_start` [B, S] int32 gives start(i); undefined
/// means 0. Result [B, S, Hq, D] contiguous.
/// Works in blocks of queries: no S x S matrix ever exists (Dao et al.,
/// "FlashAttention").
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& document_start, bool fused);

}  // namespace longhaul::ops
