#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "longhaul/families/description.h"
#include "longhaul/layout/buckets.h"
#include "longhaul/layout/pipeline/plan.h"

namespace longhaul {

/// Numbers of a chunk's units among those of its rank; -1: none here.
struct ChunkUnits {
  StageSpec spec;
  int embedding = -1;
  int first_block = 0;
  int head = -1;  ///< whose matrix the head multiplies with: the embedding, where tied
  /// Of a head's own layers, which run backward as a block's; `head` itself where the
  /// matrix is in the same unit.
  int head_layers = -1;

  int block(int64_t layer) const {
    return first_block + static_cast<int>(layer - spec.first_layer);
  }
};

/// What the units of a rank's chunks need of the ranks that share them.
struct RankUnits {
  std::vector<ChunkUnits> chunks;
  /// Of each unit: bytes of the weights that are gathered for a use; 0: they stay.
  std::vector<int64_t> gathered_bytes;
  /// Buffers for gathered weights, by their bytes: see gather_slots.
  std::map<int64_t, int> slots;
  bool reduce_each = false;  ///< after each micro batch: full gradients do not stay
  bool delayed = false;      ///< weight gradients of blocks are the plan's own actions
};

/// A unit's weights are used once: in a forward, or in a backward.
struct WeightUse {
  PipelineAction::Kind kind = PipelineAction::Kind::Forward;
  int unit = 0;
  std::vector<int> gather;   ///< units whose gather begins before it, in this order
  std::vector<int> release;  ///< units that are not held any longer after it
  bool operator==(const WeightUse&) const = default;
};

/// A unit's gradients of a micro batch are formed.
struct GradientUse {
  int unit = 0;
  bool reduce = false;  ///< what has been summed so far is summed over the ranks
  bool last = false;    ///< of the step
  bool operator==(const GradientUse&) const = default;
};

/// What a rank gathers, releases and reduces in a step, and when: both lists in the order
/// in which the actions of its plan come to them. Ranks that share their units have the
/// same, so that their collectives meet.
struct UnitPlan {
  std::vector<WeightUse> weights;
  std::vector<GradientUse> gradients;
};

/// Weights are gathered one use ahead, where there is a buffer. What is held stays until
/// its buffer is needed: of units of one size the one whose next use is farthest goes
/// first (Belady, "A study of replacement algorithms", 1966), and one that is not used
/// again goes at once. Gradients of a unit are reduced in ascending micro batches under
/// every schedule.
UnitPlan plan_units(const PipelinePlan& plan, int stage, const RankUnits& units);

/// How many buffers of each size a rank has: two where units of that size follow each
/// other in `training`, one in use and one on its way, else one; what `budget` has room
/// for beyond that goes to the most numerous units first. Buffers are kept by size, as
/// they are used again without being given back.
std::map<int64_t, int> gather_slots(const PipelinePlan& training, int stage,
                                    const RankUnits& units, int64_t budget);

int64_t slot_bytes(const std::map<int64_t, int>& slots);

/// Bytes of buffers for gathered weights that such a step takes.
int64_t gathered_peak(const UnitPlan& plan, const RankUnits& units);

/// Of each unit: bytes of weights that do not stay, in elements of so many bytes.
std::vector<int64_t> gathered_bytes(std::span<const BucketShape> buckets,
                                    int64_t element_bytes);

}  // namespace longhaul
