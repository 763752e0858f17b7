#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/families/description.h"
#include "longhaul/layout/layout_description.h"

namespace longhaul {

/// How the forward and backward passes of a run go, the same on every rank.
struct Passes {
  ForwardForm form;
  TokenCounts tokens;         ///< of a micro batch
  int64_t features = 0;       ///< of hidden states
  int64_t passed = 0;         ///< features of all that units hand on
  int64_t recompute_end = 0;  ///< blocks before it run again in the backward
  /// Of logits that exist at once. The run's device counts as a CPU where it is `auto`.
  int64_t logits_elements = kLogitsElements;

  /// Of this unit: the form without recomputation for a block that keeps all.
  ForwardForm form_of(const UnitDescription& unit) const;
  /// Hidden states between units, or their gradient.
  int64_t hidden_bytes() const { return tokens.outside * features * form.compute_bytes; }
  /// What passes between stages.
  int64_t boundary_bytes() const { return tokens.outside * passed * form.compute_bytes; }
};
Passes passes_of(const RunConfig& config, const ModelDescription& model,
                 const LayoutDescription& layout);

/// Bytes of tensors that one rank holds during the passes of a step, beside its state.
/// Nothing is frozen. Another device than a CPU holds tokens and positions of every micro
/// batch in flight as well, 8 bytes a token, which is not counted.
struct ActivationBytes {
  /// At the moment of the plan at which most is kept, what forwards have left for
  /// their backwards and backwards for weight gradients that are put off.
  KeptBytes in_flight;
  int64_t forwards = 0;  ///< that are open then, micro batches times chunks
  int64_t logits = 0;    ///< that exist at once, 0 without a head
  /// What the fused forms take beside, about: of the head or of a block's backward,
  /// whichever takes more, and a message between stages.
  int64_t work = 0;
};
ActivationBytes activation_bytes(const Passes& passes, const ModelDescription& model,
                                 const LayoutDescription& layout,
                                 const PipelinePlan& plan, const MeshIndex& at);

/// What a micro batch leaves on one chunk of a rank.
struct ChunkBytes {
  KeptBytes forward;   ///< from its forward to its backward
  KeptBytes backward;  ///< from its backward until its weight gradients are done
};
ChunkBytes chunk_bytes(const Passes& passes, const ModelDescription& model,
                       const LayoutDescription& layout, const MeshIndex& at, int chunk);

/// Bytes of gradients that do not stay and are formed whole: the largest unit, and two
/// blocks, of which one is being reduced.
int64_t whole_gradients(const std::vector<BucketPlan>& buckets,
                        const PrecisionSection& precision);

}  // namespace longhaul
