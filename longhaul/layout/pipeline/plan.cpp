#include "longhaul/layout/pipeline/plan.h"

#include <algorithm>
#include <string_view>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

using Kind = PipelineAction::Kind;

struct Step {
  int64_t chunk;
  int64_t micro_batch;
};

/// Returns all pairs of chunk and micro batch, in groups of `stages` micro batches: a
/// group passes through every chunk before the next group starts.
std::vector<Step> rounds(int stages, int chunks, int64_t micro_batches) {
  std::vector<Step> steps;
  for (int64_t begin = 0; begin < micro_batches; begin += stages) {
    const int64_t end = std::min(begin + stages, micro_batches);
    for (int64_t c = 0; c < chunks; ++c) {
      for (int64_t m = begin; m < end; ++m) steps.push_back({c, m});
    }
  }
  return steps;
}

/// Returns `warm_up` forwards, then forwards and backwards in turn, then the remaining
/// backwards. Weight gradients come `delay` backwards late.
std::vector<PipelineAction> weave(const std::vector<Step>& forwards, int chunks,
                                  int64_t warm_up, int64_t delay) {
  std::vector<Step> backwards = forwards;
  for (Step& step : backwards) step.chunk = chunks - 1 - step.chunk;
  const auto n = static_cast<int64_t>(forwards.size());
  std::vector<PipelineAction> actions;
  actions.reserve(3 * forwards.size());
  const auto add = [&](Kind kind, const std::vector<Step>& steps, int64_t i) {
    const Step& step = steps[static_cast<size_t>(i)];
    actions.push_back({kind, step.chunk, step.micro_batch});
  };
  int64_t next = 0;
  while (next < std::min(warm_up, n)) add(Kind::Forward, forwards, next++);
  for (int64_t b = 0; b < n; ++b) {
    if (next < n) add(Kind::Forward, forwards, next++);
    add(Kind::Backward, backwards, b);
    if (b >= delay) add(Kind::WeightGradients, backwards, b - delay);
  }
  for (int64_t w = std::max<int64_t>(n - delay, 0); w < n; ++w) {
    add(Kind::WeightGradients, backwards, w);
  }
  return actions;
}

void check_counts(int stages, int chunks, int64_t micro_batches) {
  LH_CHECK(stages >= 1 && chunks >= 1 && micro_batches >= 1, "pipeline",
           "the pipeline has {} stages, {} virtual stages a rank and {} micro batches",
           stages, chunks, micro_batches);
}

}  // namespace

std::string to_string(const PipelineAction& action) {
  constexpr std::string_view kLetters = "FBW";
  return fmt::format("{}{}.{}", kLetters.at(static_cast<size_t>(action.kind)),
                     action.chunk, action.micro_batch);
}

PipelinePlan make_pipeline_plan(PipelineKind kind, int stages, int virtual_stages,
                                int64_t micro_batches) {
  check_counts(stages, virtual_stages, micro_batches);
  const bool interleaved = kind == PipelineKind::Interleaved;
  LH_CHECK(interleaved == (virtual_stages > 1) &&
               (!interleaved || micro_batches % stages == 0),
           "pipeline", "{} micro batches in {} stages, {} on each rank, {}interleaved",
           micro_batches, stages, virtual_stages, interleaved ? "" : "not ");
  PipelinePlan plan{stages, virtual_stages, micro_batches, true, {}};
  const std::vector<Step> forwards = rounds(stages, virtual_stages, micro_batches);
  for (int rank = 0; rank < stages; ++rank) {
    const int64_t behind = stages - rank - 1;
    int64_t warm_up = behind;
    if (kind == PipelineKind::GPipe) warm_up = micro_batches;
    if (kind == PipelineKind::Interleaved) {
      warm_up = 2 * behind + int64_t{virtual_stages - 1} * stages;
    }
    const int64_t delay = kind == PipelineKind::ZeroBubbleH1 ? rank : 0;
    plan.actions.push_back(weave(forwards, virtual_stages, warm_up, delay));
  }
  return plan;
}

PipelinePlan inference_plan(int stages, int chunks, int64_t micro_batches) {
  check_counts(stages, chunks, micro_batches);
  PipelinePlan plan{stages, chunks, micro_batches, false, {}};
  std::vector<PipelineAction> actions;
  for (const Step& step : rounds(stages, chunks, micro_batches)) {
    actions.push_back({Kind::Forward, step.chunk, step.micro_batch});
  }
  plan.actions.assign(static_cast<size_t>(stages), actions);
  return plan;
}

}  // namespace longhaul::layout
