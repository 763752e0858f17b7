#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul {

/// One thing that a rank does in a step.
struct PipelineAction {
  enum class Kind {
    Forward,          ///< of one micro batch through one chunk
    Backward,         ///< input gradients; weight gradients are only enqueued
    WeightGradients,  ///< drains what the backward of that micro batch has enqueued
  };
  Kind kind = Kind::Forward;
  int64_t chunk = 0;  ///< which of the rank's stages
  int64_t micro_batch = 0;
  auto operator<=>(const PipelineAction&) const = default;
};

/// "F0.3" is the forward of chunk 0, micro batch 3; B, W likewise.
std::string to_string(const PipelineAction& action);

/// What every rank of a pipeline does in a step. Known to all ranks in full: a receiver
/// derives from it the order in which its peers send, and plan_units what a rank gathers,
/// releases and reduces.
/// Backwards and weight gradients of a chunk come in ascending micro batches, so that
/// sums of gradients have the same bits under every schedule.
struct PipelinePlan {
  int stages = 1;  ///< ranks
  int chunks = 1;  ///< stages per rank
  int64_t micro_batches = 1;
  bool training = true;                              ///< false: forwards only
  std::vector<std::vector<PipelineAction>> actions;  ///< per rank

  int64_t global_stages() const { return int64_t{stages} * chunks; }
  /// Stages go round the ranks: chunk 0 of every rank, then chunk 1 ...
  int64_t global_stage(int rank, int64_t chunk) const { return chunk * stages + rank; }
  const std::vector<PipelineAction>& of(int rank) const {
    return actions[static_cast<size_t>(rank)];
  }
};

/// The plan of a training step:
///  GPipe         all forwards, then all backwards (Huang et al., arXiv 1811.06965)
///  OneFOneB      stages - rank - 1 forwards first, then one forward, one backward
///                (PipeDream-Flush: Narayanan et al., arXiv 2006.09503)
///  Interleaved   the same with several chunks a rank (Narayanan et al., arXiv
///                2104.04473); the micro batches are a multiple of the stages
///  ZeroBubbleH1  OneFOneB whose rank r does weight gradients r backwards late, which
///                fills the gaps at the end (Qi et al., arXiv 2401.10241)
/// In all but the last, weight gradients follow their backward directly.
/// ConfigError for what does not fit together, with the numbers and what to do.
PipelinePlan make_pipeline_plan(PipelineKind kind, int stages, int virtual_stages,
                                int64_t micro_batches);

/// The same errors, and no plan.
void check_pipeline_plan(PipelineKind kind, int stages, int virtual_stages,
                         int64_t micro_batches);

/// Forwards only, for evaluation: any number of micro batches.
PipelinePlan inference_plan(int stages, int chunks, int64_t micro_batches);

}  // namespace longhaul
