#pragma once

#include <string_view>

#include "longhaul/config/run_config.h"
#include "longhaul/families/description/description.h"
#include "longhaul/layout/layout_description.h"

namespace longhaul::layout {

/// The numbers that the activations of a run's forward and backward passes follow from.
/// All ranks have equal Passes.
struct Passes {
  ForwardForm form;
  TokenCounts tokens;         ///< tokens of a micro batch
  int64_t features = 0;       ///< width of hidden states
  int64_t passed = 0;         ///< the sum of the widths of all tensors that units hand on
  int64_t recompute_end = 0;  ///< blocks before this one run again in the backward
  /// The number of logits that exist at once. A run on the device `auto` counts as a run
  /// on a CPU.
  int64_t logits_elements = kLogitsElements;
  int64_t token_bytes = 0;  ///< on a device, of the token and position of one place

  /// Returns `form` for this unit. Units that are not recomputed, such as late blocks,
  /// get it without full recomputation.
  ForwardForm form_of(const UnitDescription& unit) const;
  /// Returns the bytes of the hidden states between two units, or of their gradient.
  int64_t hidden_bytes() const { return tokens.outside * features * form.compute_bytes; }
  /// Returns the bytes that pass between two stages for a micro batch.
  int64_t boundary_bytes() const { return tokens.outside * passed * form.compute_bytes; }
};
/// Returns the Passes of a run on this device, named as in run.device.
Passes passes_of(const RunConfig& config, const ModelDescription& model,
                 const LayoutDescription& layout, std::string_view device);

/// The bytes of activations and other temporary tensors that one rank holds in a step, if
/// no parameter is frozen.
struct ActivationBytes {
  /// Bytes that forwards keep for their backwards, and backwards for deferred weight
  /// gradients, at the moment of the plan at which most is kept.
  KeptBytes in_flight;
  int64_t forwards = 0;  ///< forwards without their backward at that moment
  int64_t tokens = 0;    ///< on a device, tokens and positions of these forwards
  int64_t logits = 0;    ///< bytes of logits that exist at once; 0 without a head
  /// An estimate of the temporary memory of the fused forms: the memory of the head, of a
  /// block's backward or of a block's exchange of rows (ep), whichever is largest, and a
  /// message between stages.
  int64_t work = 0;
};
ActivationBytes activation_bytes(const Passes& passes, const ModelDescription& model,
                                 const LayoutDescription& layout,
                                 const PipelinePlan& plan, const MeshIndex& at);

/// Returns the temporary memory of one block's backward, or of the head, of which `work`
/// is made; 0 for an embedding.
int64_t unit_work_bytes(const Passes& passes, const UnitDescription& unit,
                        const LayoutDescription& layout, const MeshIndex& at);

/// The bytes that a rank keeps for one micro batch in one chunk (stage) of the rank.
struct ChunkBytes {
  KeptBytes forward;   ///< kept from the forward to the backward
  KeptBytes backward;  ///< kept from the backward until the weight gradients are done
};
ChunkBytes chunk_bytes(const Passes& passes, const ModelDescription& model,
                       const LayoutDescription& layout, const MeshIndex& at, int chunk);

/// Returns the bytes of the buffers in which gradients are formed whole before they are
/// cut into shards. A buffer serves all buckets of its size. One unit is reduced while
/// the next one forms its gradients, so that there are buffers for two units in a row,
/// such as for one table and two blocks.
int64_t whole_gradients(const std::vector<BucketPlan>& buckets,
                        const PrecisionSection& precision);

}  // namespace longhaul::layout
