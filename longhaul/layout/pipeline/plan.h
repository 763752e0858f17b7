#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul::layout {

/// One action of a rank in a step.
struct PipelineAction {
  enum class Kind {
    Forward,          ///< the forward of one micro batch through one chunk
    Backward,         ///< computes input gradients and defers weight gradients
    WeightGradients,  ///< computes the weight gradients that the backward has deferred
  };
  Kind kind = Kind::Forward;
  int64_t chunk = 0;  ///< which of the rank's stages
  int64_t micro_batch = 0;
  auto operator<=>(const PipelineAction&) const = default;
};

/// Returns a short name: "F0.3" is the forward of chunk 0 and micro batch 3, "B0.3" its
/// backward, "W0.3" its weight gradients.
std::string to_string(const PipelineAction& action);

/// The actions of every rank of a pipeline in a step. Every rank knows the whole plan: a
/// receiver derives from the plan the order in which its peers send, and plan_units
/// derives what a rank gathers, releases and reduces. Backwards and weight gradients of a
/// chunk come in ascending micro batches, so that sums of gradients have the same bits
/// under every schedule.
struct PipelinePlan {
  int stages = 1;  ///< ranks
  int chunks = 1;  ///< stages per rank
  int64_t micro_batches = 1;
  bool training = true;                              ///< false: only forwards
  std::vector<std::vector<PipelineAction>> actions;  ///< one list for each rank

  int64_t global_stages() const { return int64_t{stages} * chunks; }
  /// Returns the number of a global stage. Global stages are numbered round the ranks:
  /// chunk 0 of every rank, then chunk 1 ...
  int64_t global_stage(int rank, int64_t chunk) const { return chunk * stages + rank; }
  const std::vector<PipelineAction>& of(int rank) const {
    return actions[static_cast<size_t>(rank)];
  }
};

/// Returns the plan of a training step:
/// - GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965);
/// - OneFOneB: stages - rank - 1 forwards first, then forwards and backwards in turn
///   (PipeDream-Flush: Narayanan et al., arXiv 2006.09503);
/// - Interleaved: OneFOneB with several chunks on each rank (Narayanan et al., arXiv
///   2104.04473), where the micro batches are a multiple of the stages;
/// - ZeroBubbleH1: OneFOneB whose rank r computes weight gradients r backwards late,
///   which fills the gaps at the end (Qi et al., arXiv 2401.10241).
///
/// In all kinds but ZeroBubbleH1, weight gradients follow their backward directly. The
/// arguments must break no rule of layout/rules.h.
PipelinePlan make_pipeline_plan(PipelineKind kind, int stages, int virtual_stages,
                                int64_t micro_batches);

/// Returns a plan of forwards only, for evaluation. Any number of micro batches fits.
PipelinePlan inference_plan(int stages, int chunks, int64_t micro_batches);

}  // namespace longhaul::layout
