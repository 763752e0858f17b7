#include "longhaul/plan/played_pipeline.h"

#include <algorithm>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/messages.h"

namespace longhaul::plan {
namespace {

using layout::PipelineAction;

/// The times at which messages arrive, by the stage and the micro batch that need them.
class Arrivals {
 public:
  explicit Arrivals(const layout::PipelinePlan& plan)
      : plan_(plan),
        times_(static_cast<size_t>(2 * plan.global_stages() * plan.micro_batches), -1.0) {
  }

  double& of(int rank, const PipelineAction& action) {
    const int64_t kind = action.kind == PipelineAction::Kind::Forward ? 0 : 1;
    const int64_t stage = plan_.global_stage(rank, action.chunk);
    return times_.at(
        static_cast<size_t>((kind * plan_.global_stages() + stage) * plan_.micro_batches +
                            action.micro_batch));
  }

 private:
  const layout::PipelinePlan& plan_;
  std::vector<double> times_;
};

}  // namespace

std::vector<RankTimes> play(
    const layout::PipelinePlan& plan,
    const std::function<double(int rank, const layout::PipelineAction&)>& seconds,
    double message_seconds) {
  std::vector<RankTimes> ranks(static_cast<size_t>(plan.stages));
  std::vector<size_t> next(ranks.size(), 0);
  Arrivals arrivals(plan);
  bool moved = true;
  size_t left = 0;
  for (const auto& actions : plan.actions) left += actions.size();
  while (left > 0 && moved) {
    moved = false;
    for (int rank = 0; rank < plan.stages; ++rank) {
      RankTimes& times = ranks[static_cast<size_t>(rank)];
      for (size_t& i = next[static_cast<size_t>(rank)]; i < plan.of(rank).size(); ++i) {
        const PipelineAction& action = plan.of(rank)[i];
        double begin = times.end;
        if (const auto message = layout::message_before(plan, rank, action)) {
          const double arrived = arrivals.of(rank, action);
          if (arrived < 0.0) break;
          begin = std::max(begin, arrived);
        }
        const double taken = seconds(rank, action);
        times.busy += taken;
        times.end = begin + taken;
        if (const auto message = layout::message_after(plan, rank, action)) {
          arrivals.of(message->to, message->consumer) =
              times.end + (message->to == rank ? 0.0 : message_seconds);
        }
        moved = true;
        --left;
      }
    }
  }
  LH_ASSERT(left == 0, "{} actions of the pipeline wait for each other", left);
  return ranks;
}

}  // namespace longhaul::plan
