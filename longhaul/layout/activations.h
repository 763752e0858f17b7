#pragma once

#include "longhaul/config/run_config.h"
#include "longhaul/families/description.h"
#include "longhaul/layout/layout_description.h"

namespace longhaul {

/// What the forward and backward passes of a run are like; the same on every rank.
struct Passes {
  ForwardForm form;
  TokenCounts tokens;         ///< tokens of a micro batch
  int64_t features = 0;       ///< width of hidden states
  int64_t passed = 0;         ///< width of all tensors that units hand on, together
  int64_t recompute_end = 0;  ///< blocks before this one run again in the backward
  /// Logits that exist at once. A run on the device `auto` counts as one on a CPU.
  int64_t logits_elements = kLogitsElements;

  /// Returns the form of this unit's passes: without recomputation for a block that keeps
  /// everything.
  ForwardForm form_of(const UnitDescription& unit) const;
  /// Bytes of the hidden states between two units, or of their gradient.
  int64_t hidden_bytes() const { return tokens.outside * features * form.compute_bytes; }
  /// Bytes that pass between two stages for a micro batch.
  int64_t boundary_bytes() const { return tokens.outside * passed * form.compute_bytes; }
};
Passes passes_of(const RunConfig& config, const ModelDescription& model,
                 const LayoutDescription& layout);

/// Bytes of tensors that one rank holds during the passes of a step, beside its state,
/// where nothing is frozen. A device other than a CPU also holds tokens and positions of
/// every micro batch in flight, 8 bytes a token; these are not counted.
struct ActivationBytes {
  /// Bytes that forwards keep for their backwards, and backwards for deferred weight
  /// gradients, at the moment of the plan at which most is kept.
  KeptBytes in_flight;
  int64_t forwards = 0;  ///< forwards without their backward at that moment
  int64_t logits = 0;    ///< bytes of logits that exist at once; 0 without a head
  /// An estimate of the temporary memory of the fused forms: that of the head or of a
  /// block's backward, whichever is larger, and a message between stages.
  int64_t work = 0;
};
ActivationBytes activation_bytes(const Passes& passes, const ModelDescription& model,
                                 const LayoutDescription& layout,
                                 const PipelinePlan& plan, const MeshIndex& at);

/// Bytes that a micro batch keeps on one chunk of a rank.
struct ChunkBytes {
  KeptBytes forward;   ///< kept from its forward to its backward
  KeptBytes backward;  ///< kept from its backward until its weight gradients are done
};
ChunkBytes chunk_bytes(const Passes& passes, const ModelDescription& model,
                       const LayoutDescription& layout, const MeshIndex& at, int chunk);

/// Returns the bytes of gradients that are formed whole and then cut: those of the
/// largest unit and of two blocks, one of which is being reduced.
int64_t whole_gradients(const std::vector<BucketPlan>& buckets,
                        const PrecisionSection& precision);

}  // namespace longhaul
