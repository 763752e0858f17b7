#pragma once

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// The attention of a context-parallel group for nn::ForwardContext::attention, by
/// ring_attention or gather_attention. Calls are Collective over `cp`, in the same order
/// on all ranks, and so is the backward of each; a call may be repeated (recomputation)
/// and gives the same bits. `cp` must outlive it.
nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp);

}  // namespace longhaul::parallel
