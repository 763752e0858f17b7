#include "longhaul/train/largest_step.h"

#include <algorithm>
#include <numeric>

#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/session/router_loads.h"
#include "longhaul/train/step/step_loss.h"

namespace longhaul::train {

void fill_up(const TrainingSession& session, data::StepBatch& batch) {
  if (!session.model().description.is_causal()) return;
  std::ranges::fill(batch.num_targets, 0);
  batch.num_real = 0;
  for (data::TokenBatch& micro : batch.micro_batches) {
    std::ranges::fill(micro.document_start, 0);
    std::ranges::fill(micro.real, 1);
    for (size_t i = 0; i < micro.positions.size(); ++i) {
      micro.positions[i] = static_cast<int32_t>(i % static_cast<size_t>(micro.seq_len));
    }
    for (size_t term = 0; term < micro.targets.size(); ++term) {
      std::ranges::replace(micro.targets[term], data::kIgnore, 0);
      batch.num_targets[term] += micro.num_targets(term);
    }
    batch.num_real += micro.num_real();
  }
}

void try_step(TrainingSession& session, const History& history, data::StepBatch& batch) {
  const RunConfig& config = session.config();
  session::StageRunner runner(session.chunks(), session.replicas(),
                              session::stage_options(session));
  if (config.experts.balance == BalanceKind::Global) {
    runner.set_shares(session::expert_shares(session, history.expert_loads));
  }
  const StepLoss loss(session, sum_over_replicas(session, batch));
  session.layout().take_own_positions(batch.micro_batches);
  session.flat().zero_grads();
  runner.begin_step(batch.micro_batches, loss.scales());
  session::run_plan(session, session.layout().description().training_plan(), runner);
  std::vector<std::vector<double>> sums = session.layout().read_on_host(
      {runner.device_loss_sums(),
       session.optimizer().gradient_squares(session.parameter_names())});
  std::vector<double> squares =
      session.optimizer().squares_of_read(session.parameter_names(), sums[1]);
  const double norm = optim::norm_over(session.world(), squares);
  const optim::RunSchedule schedule(*history.schedule);
  session.optimizer().step(schedule.lr(history.step + 1),
                           optim::clip_coefficient(norm, config.optimizer.clip),
                           session.layout().everyone());
  session.replicas().share_weights(parallel::DataParallel::Written::Trained);
  session.replicas().finish_weights();
}

}  // namespace longhaul::train
