#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/layout/buckets.h"
#include "longhaul/layout/pipeline/plan.h"

namespace longhaul::layout {

/// The units of a chunk, numbered among all units of its rank; -1: the chunk has no such
/// unit.
struct ChunkUnits {
  StageSpec spec;
  int embedding = -1;
  int first_block = 0;
  int head = -1;  ///< the unit with the head's matrix: the embedding where tied
  /// The unit with the head's own layers, whose backward runs like a block's. It is equal
  /// to `head` if one unit has both the layers and the matrix.
  int head_layers = -1;

  int block(int64_t layer) const {
    return first_block + static_cast<int>(layer - spec.first_layer);
  }
};

/// The units of a rank's chunks, and what is gathered and reduced for them.
struct RankUnits {
  std::vector<ChunkUnits> chunks;
  /// For each unit the bytes of weights that are gathered for a use; 0: the weights stay.
  std::vector<int64_t> gathered_bytes;
  /// The number of buffers for gathered weights, by their bytes (gather_slots).
  std::map<int64_t, int> slots;
  bool reduce_each = false;  ///< gradients are reduced after each micro batch
  bool delayed = false;      ///< weight gradients of blocks are actions of the plan
};

/// One use of a unit's weights, in a forward or in a backward.
struct WeightUse {
  PipelineAction::Kind kind = PipelineAction::Kind::Forward;
  int unit = 0;
  std::vector<int> gather;   ///< units whose gather begins before the use, in this order
  std::vector<int> release;  ///< units that are released after the use
  bool operator==(const WeightUse&) const = default;
};

/// The moment at which a unit's gradients of a micro batch are formed.
struct GradientUse {
  int unit = 0;
  bool reduce =
      false;          ///< the gradients so far are reduced over the ranks at this moment
  bool last = false;  ///< the micro batch is the step's last one
  bool operator==(const GradientUse&) const = default;
};

/// What a rank gathers, releases and reduces in a step, and when. Both lists are in the
/// order in which the actions of the rank's plan come to them. Ranks that share units
/// have equal plans, so that their collectives meet.
struct UnitPlan {
  std::vector<WeightUse> weights;
  std::vector<GradientUse> gradients;
};

/// Plans a step of a stage. Weights are gathered one use ahead if there is a buffer.
/// Gathered weights stay until their buffer is needed. Among units of one size, the unit
/// whose next use is farthest goes first (Belady, "A study of replacement algorithms",
/// 1966). A unit that is not used again goes at once. Gradients of a unit are reduced in
/// ascending micro batches under every schedule.
UnitPlan plan_units(const PipelinePlan& plan, int stage, const RankUnits& units);

/// Returns how many buffers of each size a rank has. There are two buffers if units of
/// one size follow each other in `training` (one unit in use, the next on its way), and
/// one buffer otherwise. The rest of `budget`, in bytes, goes to the most numerous units
/// first. Buffers are counted by size because they are used again without being freed.
std::map<int64_t, int> gather_slots(const PipelinePlan& training, int stage,
                                    const RankUnits& units, int64_t budget);

/// Returns the bytes of all buffers together.
int64_t slot_bytes(const std::map<int64_t, int>& slots);

/// Returns the bytes of buffers for gathered weights that a step with this plan takes.
int64_t gathered_peak(const UnitPlan& plan, const RankUnits& units);

/// Returns for each unit the bytes of its weights that are gathered anew for each use.
std::vector<int64_t> gathered_bytes(std::span<const BucketShape> buckets,
                                    int64_t element_bytes);

}  // namespace longhaul::layout
