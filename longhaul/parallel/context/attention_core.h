#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Returns the attention of a context-parallel group for nn::ForwardContext::attention:
/// ops::attention over sequences whose positions lie on the ranks of `cp` as
/// ContextLayout says. q [B, S, Hq, D], k and v [B, S, Hkv, D] are of this rank's
/// positions, rotated by their positions in the whole sequence; the mask's document_start
/// and document_end hold indices of the whole sequence. The result is as q.
///
/// `kind` says how keys and values come to the ranks (key_walk.h). Partial results are
/// merged in fp32 by log-sum-exp, in the order in which the keys come. Keys that no query
/// of a rank sees by its window travel like others and are not multiplied.
///
/// Calls are Collective over `cp`, in the same order on all ranks, and so is the backward
/// of each, which runs on the thread that owns `cp`. A call may be repeated
/// (recomputation) and gives the same bits. `cp` must outlive the result and its graphs.
nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp);

}  // namespace longhaul::parallel
