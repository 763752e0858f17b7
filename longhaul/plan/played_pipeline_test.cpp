#include "longhaul/plan/played_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longhaul::plan {
namespace {

using layout::PipelineAction;

/// Plays a plan whose stages share their rank's work: a forward of a micro batch takes a
/// rank 1 s, its backward and its weight gradients as much.
std::vector<RankTimes> played(PipelineKind kind, int stages, int chunks,
                              int64_t micro_batches, double message = 0.0) {
  const layout::PipelinePlan plan =
      layout::make_pipeline_plan(kind, stages, chunks, micro_batches);
  return play(plan, [&](int, const PipelineAction&) { return 1.0 / chunks; }, message);
}

double end_of(const std::vector<RankTimes>& ranks) {
  double end = 0.0;
  for (const RankTimes& rank : ranks) end = std::max(end, rank.end);
  return end;
}

/// Returns how many times its work a pipeline takes.
double stretch(PipelineKind kind, int stages, int chunks, int64_t micro_batches) {
  const auto ranks = played(kind, stages, chunks, micro_batches);
  for (const RankTimes& rank : ranks) {
    EXPECT_NEAR(rank.busy, 3.0 * static_cast<double>(micro_batches), 1e-9);
  }
  return end_of(ranks) / ranks[0].busy;
}

TEST(PlayedPipeline, OfEqualStagesTakesTheClosedForm) {
  const auto seconds = [](int, const PipelineAction& action) {
    return action.kind == PipelineAction::Kind::Forward    ? 1.0
           : action.kind == PipelineAction::Kind::Backward ? 2.0
                                                           : 0.0;
  };
  for (const PipelineKind kind : {PipelineKind::OneFOneB, PipelineKind::GPipe}) {
    for (const int p : {1, 2, 4, 8}) {
      for (const int64_t m : {8, 16, 64}) {
        const auto ranks = play(layout::make_pipeline_plan(kind, p, 1, m), seconds, 0.0);
        EXPECT_NEAR(end_of(ranks) / ranks[0].busy,
                    static_cast<double>(m + p - 1) / static_cast<double>(m), 1e-9)
            << p << " " << m;
      }
    }
  }
}

/// A backward hands its gradient on before the weight gradients are formed.
TEST(PlayedPipeline, WaitsLessWhereWeightGradientsComeAfterTheMessage) {
  EXPECT_LT(stretch(PipelineKind::OneFOneB, 4, 1, 8), 11.0 / 8.0);
}

TEST(PlayedPipeline, InterleavedAndZeroBubbleWaitLess) {
  const double plain = stretch(PipelineKind::OneFOneB, 4, 1, 8);
  EXPECT_LT(stretch(PipelineKind::Interleaved, 4, 2, 8), plain);
  EXPECT_LT(stretch(PipelineKind::Interleaved, 4, 4, 8),
            stretch(PipelineKind::Interleaved, 4, 2, 8));
  EXPECT_LT(stretch(PipelineKind::ZeroBubbleH1, 4, 1, 8), plain);
}

TEST(PlayedPipeline, WaitsForMessages) {
  // One micro batch passes through two stages with a message each way. The weight
  // gradients of the last stage run beside the way back.
  const auto ranks = played(PipelineKind::OneFOneB, 2, 1, 1, 0.25);
  EXPECT_NEAR(end_of(ranks), 1.0 + 0.25 + 2.0 + 0.25 + 2.0, 1e-9);
}

}  // namespace
}  // namespace longhaul::plan
