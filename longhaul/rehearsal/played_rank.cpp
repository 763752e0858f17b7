#include "longhaul/rehearsal/played_rank.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/device/device.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/rehearsal/device.h"
#include "longhaul/rehearsal/memory.h"
#include "longhaul/session/dtype_policy.h"
#include "longhaul/session/inference.h"
#include "longhaul/session/router_loads.h"
#include "longhaul/train/sample_text.h"
#include "longhaul/train/start/training_session.h"
#include "longhaul/train/step/step_loss.h"
#include "longhaul/train/validation.h"

namespace longhaul::rehearsal {
namespace {

/// The counts of rows that the host reads, where each expert gets its even share.
class EvenRows {
 public:
  EvenRows(const ModelConfig& model, const layout::LayoutDescription& layout, int rank,
           int64_t tokens)
      : experts_(families::most_experts(model.network)) {
    for (const families::Block& block : model.network.blocks) {
      if (const families::Experts* of = families::experts_of(block)) {
        rows_ = tokens * of->top_k;
      }
    }
    ep_ = layout.ep;
    if (ep_ > 1) {
      index_ = layout.rank_groups().place(layout::GroupKind::Ep, rank).index;
    }
  }

  void operator()(void* numbers, int64_t count, bool wide) const {
    if (experts_ == 0) return;
    const int64_t here = experts_ / ep_;
    if (wide && count == 2 * experts_) {
      // The rows for each expert, and those that come from each rank for the experts
      // here.
      auto* at = static_cast<int64_t*>(numbers);
      for (int64_t e = 0; e < experts_; ++e) *at++ = rows_of(e);
      for (int64_t r = 0; r < ep_; ++r) {
        for (int64_t e = 0; e < here; ++e) *at++ = rows_of(index_ * here + e);
      }
    } else if (!wide && count == here + 1) {
      auto* at = static_cast<int32_t*>(numbers);
      int64_t row = 0;
      for (int64_t e = 0; e < here; ++e) {
        at[e] = static_cast<int32_t>(row);
        row += ep_ * rows_of(index_ * here + e);
      }
      at[here] = static_cast<int32_t>(row);
    }
  }

 private:
  int64_t rows_of(int64_t expert) const {
    return rows_ / experts_ + (expert < rows_ % experts_ ? 1 : 0);
  }

  int64_t experts_;
  int64_t rows_ = 0;  ///< of this rank's tokens
  int64_t ep_ = 1;
  int64_t index_ = 0;  ///< of this rank among those of ep
};

/// Returns a batch as the loader hands out, of one document in each row, or of two where
/// the data tells documents apart.
data::TokenBatch make_batch(const RunConfig& config, const ModelDescription& model) {
  data::TokenBatch batch;
  const int64_t rows = config.batch.micro_size, length = config.data.seq_len;
  batch.resize(rows, length);
  batch.targets.clear();
  for (const LossTerm& term : model.losses) {
    if (term.over != LossTerm::Over::Targets) continue;
    batch.targets.emplace_back(
        static_cast<size_t>(term.of_sequences ? rows : rows * length), 0);
  }
  if (!model.is_causal()) {
    batch.segments.resize(batch.tokens.size());
    batch.document_end.assign(batch.tokens.size(), static_cast<int32_t>(length));
  }
  for (int64_t row = 0; row < rows; ++row) {
    batch.sequences.push_back(row);
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(row * length + i);
      const int64_t start = config.data.document_mask && 2 * i >= length ? length / 2 : 0;
      batch.document_start[at] = static_cast<int32_t>(start);
      batch.positions[at] = static_cast<int32_t>(i - start);
      batch.index.push_back(static_cast<int32_t>(i));
      if (config.preference.loss) batch.sides.push_back(start == 0 ? 0 : 1);
    }
    if (config.preference.loss) batch.pairs.push_back({{.number = row}});
  }
  return batch;
}

data::StepBatch make_step(const RunConfig& config, const ModelDescription& model,
                          int64_t micro_batches) {
  data::StepBatch step;
  const data::TokenBatch batch = make_batch(config, model);
  step.micro_batches.assign(static_cast<size_t>(micro_batches), batch);
  for (size_t term = 0; term < batch.targets.size(); ++term) {
    step.num_targets.push_back(micro_batches * batch.num_targets(term));
  }
  step.num_real = micro_batches * batch.num_real();
  return step;
}

session::Session make_session(const RunConfig& config, const ModelConfig& model,
                              const optim::ParamGroups& groups, JoinedRank joined,
                              at::Device device = fake_device()) {
  session::Machine machine;
  machine.world = std::move(joined.world);
  machine.node = comm::self_world("node");
  machine.policy = session::make_policy(config.precision);
  machine.device = device;
  system::Logger silent;
  return {config, std::move(machine), model, std::move(*joined.layout), groups.settings,
          silent};
}

/// Returns the options of a run. The played device has done everything at once, so that
/// no host is ahead of it.
session::StageOptions options_of(const session::Session& session) {
  session::StageOptions options = session::stage_options(session);
  options.begin_unit = nullptr;
  return options;
}

/// What Trainer::train_step does with other ranks and with the device, in the order of
/// its parts. It has no file, no log and no value to judge: these need what a rehearsal
/// lacks, and hold no memory of the device. A test compares the memory with that of real
/// runs.
class Steps {
 public:
  explicit Steps(train::TrainingSession& session)
      : session_(session),
        plan_(session.layout().description().training_plan()),
        runner_(session.chunks(), session.replicas(), options_of(session)) {
    share_loads();
  }

  void run(int64_t step) {
    const RunConfig& config = session_.config();
    comm::Ledger& ledger = session_.world().ledger();
    ledger.set("batch", step);
    data::StepBatch batch = make_step(config, session_.model().description,
                                      session_.layout().description().batch.accumulation);
    const train::BatchTotals totals = train::sum_over_replicas(session_, batch);
    train::StepLoss loss(session_, totals);

    ledger.set("gradients", step);
    session_.layout().take_own_positions(batch.micro_batches);
    session_.flat().zero_grads();
    runner_.begin_step(batch.micro_batches, loss.scales());
    session::run_plan(session_, plan_, runner_);
    std::vector<std::vector<double>> sums = session_.layout().read_on_host(
        {runner_.device_loss_sums(),
         session_.optimizer().gradient_squares(session_.parameter_names()),
         runner_.device_router_loads()});
    sums[1] = session_.optimizer().squares_of_read(session_.parameter_names(), sums[1]);
    loss.add_up(session_, runner_.sums_of_read(sums[0]), sums[1]);
    const double norm = optim::norm_of_sums(sums[1]);
    loads_ = session::sum_router_loads(session_, sums[2], totals.positions);

    ledger.set("update", step);
    session_.optimizer().step(config.optimizer.lr,
                              optim::clip_coefficient(norm, config.optimizer.clip),
                              session_.layout().everyone());
    session_.replicas().share_weights(parallel::DataParallel::Written::Trained);
    share_loads();
  }

  /// Waits for the weights that the last step shares.
  void finish() { session_.replicas().finish_weights(); }

  /// Evaluates micro batches as train::evaluate_sets does.
  void validate() {
    std::vector<data::TokenBatch> batches(
        static_cast<size_t>(train::evaluate_options(session_.config()).micro_batches),
        make_batch(session_.config(), session_.model().description));
    session::loss_sums(session_, runner_, batches);
  }

 private:
  void share_loads() {
    if (session_.config().experts.balance == BalanceKind::Global) {
      runner_.set_shares(session::expert_shares(session_, loads_.counts));
    }
  }

  train::TrainingSession& session_;
  layout::PipelinePlan plan_;
  session::StageRunner runner_;
  session::ExpertLoads loads_;
};

}  // namespace

void play(const RunConfig& config, const ModelConfig& model,
          const optim::ParamGroups& groups, int64_t steps, JoinedRank joined,
          PlayedRank& out) {
  const auto memory = std::make_shared<Memory>();
  const PlayedMemory here(memory);
  const std::shared_ptr<Player> player = joined.player;
  player->on_device = [memory](const void* address) { return memory->has(address); };
  player->script = out.script.get();
  const layout::LayoutDescription& layout = joined.layout->description();
  const int64_t parts = layout.context ? layout.context->ranks() : 1;
  set_host(EvenRows(model, layout, out.rank,
                    config.batch.micro_size * config.data.seq_len / parts),
           [&script = *out.script] { script.add(Act::Kind::Drain, 0); });
  {
    train::TrainingSession session(make_session(config, model, groups, std::move(joined)),
                                   {}, {}, {}, groups);
    out.state_bytes = memory->used();
    Steps trained(session);
    for (int64_t step = 1; step <= steps; ++step) trained.run(step);
    trained.finish();
    out.peak_bytes = memory->peak();
  }
  set_host({}, {});
  player->script = nullptr;
}

void compute(const RunConfig& config, const ModelConfig& model,
             const optim::ParamGroups& groups, int64_t steps, const OnDevice& on,
             JoinedRank joined) {
  device::take(on.device);
  train::TrainingSession session(
      make_session(config, model, groups, std::move(joined), on.device), {}, {}, {},
      groups);
  Steps trained(session);
  for (int64_t step = 1; step <= steps; ++step) trained.run(step);
  trained.finish();
  if (on.validates) trained.validate();
  if (on.sample_tokens > 0) {
    train::NextTokens next(session, on.sample_tokens);
    for (const at::Tensor& part : next.logits({{0}})) {
      if (part.defined()) session.layout().to_host(part);
    }
  }
}

}  // namespace longhaul::rehearsal
