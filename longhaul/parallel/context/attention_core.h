#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Returns the attention of a context-parallel group for nn::ForwardContext::attention:
/// ops::attention over sequences whose positions lie on the ranks of `cp` as
/// ContextLayout says. The result has the shape and dtype of q.
///
/// q [B, S, Hq, D] and the kept tensors (keys and values) belong to this rank's positions
/// and are rotated by the positions in the whole sequence. The problem's document_start
/// and document_end hold indices of the whole sequence.
///
/// `kind` says how keys and values come to the ranks (key_walk.h); a device that cannot
/// write into a part of a tensor gathers them (whole_keys.h). Partial results are
/// merged in fp32 by log-sum-exp, in the order in which the keys come. Keys outside the
/// windows of all queries of a rank are sent like other keys, but are not multiplied.
///
/// Each call and its backward are Collective over `cp`, in the same order on all ranks.
/// The backward runs on the thread that owns `cp`. A call may be repeated (recomputation)
/// and gives the same bits. `cp` must outlive the result and its graphs.
nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp);

}  // namespace longhaul::parallel
