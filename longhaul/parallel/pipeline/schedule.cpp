#include "longhaul/parallel/pipeline/schedule.h"

namespace longhaul::parallel {

Schedule single_stage_schedule(int64_t micro_batches) {
  using Kind = Action::Kind;
  Schedule schedule;
  for (int64_t m = 0; m < micro_batches; ++m) {
    schedule.push_back({Kind::Forward, m});
    schedule.push_back({Kind::Backward, m});
    schedule.push_back({Kind::WeightGradients, m});
  }
  schedule.push_back({Kind::ReduceGradients, 0});
  return schedule;
}

void execute(const Schedule& schedule, StageActions& stage) {
  for (const Action& action : schedule) {
    switch (action.kind) {
      case Action::Kind::Forward:
        stage.forward(action.micro_batch);
        break;
      case Action::Kind::Backward:
        stage.backward(action.micro_batch);
        break;
      case Action::Kind::WeightGradients:
        stage.weight_gradients();
        break;
      case Action::Kind::ReduceGradients:
        stage.reduce_gradients();
        break;
    }
  }
}

}  // namespace longhaul::parallel
