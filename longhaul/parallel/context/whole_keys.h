#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Returns the attention of make_attention_core() for a device that writes into no part
/// of a tensor, whatever the kind. The keys and values of all ranks are gathered and put
/// into the order of the sequence. Each of this rank's chunks of queries sees them as one
/// part. The backward sums the gradients of keys and values over the ranks, in fp32
/// and in rank order. A rank holds the keys of all ranks of one layer at a time.
/// Collective, as make_attention_core() says.
at::Tensor whole_keys_attention(comm::Communicator& cp, const at::Tensor& q,
                                const ops::KeptPositions& kept,
                                const ops::AttentionProblem& problem, bool fused);

}  // namespace longhaul::parallel
