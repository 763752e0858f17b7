#include "longhaul/plan/step_estimate.h"

#include <algorithm>
#include <array>
#include <map>

#include "longhaul/plan/played_pipeline.h"

namespace longhaul::plan {
namespace {

using layout::PipelineAction;
using layout::TrafficKind;

/// Seconds of a unit's or a chunk's work for one micro batch. Each number is that of one
/// forward.
struct ForwardSeconds {
  double products = 0.0;
  double attention = 0.0;
  double moved = 0.0;           ///< kept tensors, through memory once
  double again_products = 0.0;  ///< what the backward computes once more
  double again_attention = 0.0;
  double again_moved = 0.0;

  void add(const ForwardSeconds& other) {
    products += other.products;
    attention += other.attention;
    moved += other.moved;
    again_products += other.again_products;
    again_attention += other.again_attention;
    again_moved += other.again_moved;
  }
  double again() const {
    return again_products + again_attention + kWritten * again_moved;
  }
  double forward() const { return products + attention + kWritten * moved; }
  double backward() const {
    return products + 2.0 * attention + kReadBack * moved + again();
  }
  double weight_gradients() const { return products; }

  /// A forward writes a tensor and reads it. A backward reads the tensor, and writes and
  /// reads its gradient.
  static constexpr double kWritten = 2.0;
  static constexpr double kReadBack = 3.0;
};

ForwardSeconds forward_seconds(const UnitDescription& unit, const layout::Passes& passes,
                               const PlannedRun& run, const Machine& machine,
                               const format::TpRank& tp) {
  const auto parts = static_cast<double>(run.layout.shape.tp);
  const auto tokens = static_cast<double>(passes.tokens.inside);
  const UnitWork& work = unit.work;
  ForwardForm plain = passes.form;
  plain.recompute = ForwardForm::Recompute::None;
  const double kept =
      static_cast<double>(unit.forward.kept(plain, passes.tokens, tp, true).total());
  ForwardSeconds seconds;
  seconds.products = 2.0 *
                     (work.products * tokens +
                      work.of_sequence * static_cast<double>(passes.tokens.sequences)) /
                     parts / machine.products;
  seconds.attention = 2.0 * work.attention * tokens *
                      seen_on_average(work, run.config.data.seq_len) / parts /
                      machine.attention;
  seconds.moved =
      (kept + work.lookups * tokens * static_cast<double>(passes.form.compute_bytes)) /
      machine.memory;
  const auto recompute = passes.form_of(unit).recompute;
  if (unit.kind != UnitKind::Block || recompute == ForwardForm::Recompute::None) {
    return seconds;
  }
  seconds.again_attention = seconds.attention;
  if (recompute == ForwardForm::Recompute::Full) {
    seconds.again_products = seconds.products;
    seconds.again_moved = seconds.moved;
  }
  return seconds;
}

/// The work of the ranks of one pipeline stage, chunk by chunk, and their exchanges.
struct RankWork {
  std::vector<ForwardSeconds> chunks;
  std::map<TrafficKind, double> exchanges;  ///< seconds of a step
  double reductions = 0.0;                  ///< buckets that are reduced in a step
  double update = 0.0;
  double again_share = 0.0;  ///< share of the chunks' blocks that are computed again

  /// Seconds of the exchanges that hold a pass up, in a step.
  double within_passes() const {
    double seconds = 0.0;
    for (const TrafficKind kind :
         {TrafficKind::Tensor, TrafficKind::Context, TrafficKind::Experts}) {
      const auto found = exchanges.find(kind);
      if (found != exchanges.end()) seconds += found->second;
    }
    return seconds;
  }
  double of(TrafficKind kind) const {
    const auto found = exchanges.find(kind);
    return found == exchanges.end() ? 0.0 : found->second;
  }
};

RankWork work_of(const PlannedRun& run, const layout::Passes& passes,
                 const Machine& machine, int pp) {
  const layout::LayoutDescription& layout = run.layout;
  const int rank = layout::rank_at(layout.shape, {.pp = pp});
  const layout::RankCosts& costs = run.costs.of(rank);
  RankWork work;
  double blocks = 0.0;
  double again = 0.0;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    ForwardSeconds seconds;
    for (const UnitDescription& unit : run.model.units) {
      if (!is_in_stage(unit, layout.stage(rank, chunk))) continue;
      seconds.add(forward_seconds(unit, passes, run, machine, layout.tensor.rank(0)));
      if (unit.kind != UnitKind::Block) continue;
      blocks += 1.0;
      again += passes.form_of(unit).recompute == ForwardForm::Recompute::Full ? 1.0 : 0.0;
    }
    work.chunks.push_back(seconds);
  }
  work.again_share = blocks > 0.0 ? again / blocks : 0.0;
  const layout::Groups groups = layout.rank_groups();
  for (const layout::TrafficLine& line : costs.traffic.lines()) {
    const GroupSpread spread = spread_of(groups, line.group, rank, machine.node_ranks);
    const double bytes = line.calls > 0 ? static_cast<double>(line.bytes) : 0.0;
    work.exchanges[line.kind] +=
        seconds_of(machine, spread, line.exchange, line.calls,
                   bytes / static_cast<double>(std::max<int64_t>(1, line.calls)));
    if (line.kind == TrafficKind::Gradients) {
      work.reductions += static_cast<double>(line.calls);
    }
  }
  const PrecisionSection& precision = run.config.precision;
  const double moment = precision.moments == StateType::Fp32 ? 4.0 : 2.0;
  work.update = bytes_of_update(precision) * static_cast<double>(costs.state.moments) /
                (2.0 * moment) / machine.memory;
  return work;
}

}  // namespace

double bytes_of_update(const PrecisionSection& precision) {
  const auto size = [](StateType type) { return type == StateType::Fp32 ? 4.0 : 2.0; };
  const double master = precision.master == MasterType::Fp32 ? 4.0 : 2.0;
  const double weight = precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
  return size(precision.gradients) + 2.0 * master + 4.0 * size(precision.moments) +
         (weight == master ? 0.0 : weight);
}

StepEstimate estimate_step(const PlannedRun& run, const Machine& machine) {
  const layout::LayoutDescription& layout = run.layout;
  const layout::Passes passes = layout::passes_of(run.config, run.model, layout);
  const layout::PipelinePlan plan = layout.training_plan();
  std::vector<RankWork> works;
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    works.push_back(work_of(run, passes, machine, pp));
  }
  const auto micro_batches = static_cast<double>(plan.micro_batches);
  // The share of a micro batch's exchanges that a forward has: what is computed again
  // exchanges again.
  const auto action_seconds = [&](int rank, const PipelineAction& action) {
    const RankWork& work = works[static_cast<size_t>(rank)];
    const ForwardSeconds& chunk = work.chunks[static_cast<size_t>(action.chunk)];
    const double exchanges =
        work.within_passes() / micro_batches / static_cast<double>(work.chunks.size());
    const double forward_share = 1.0 / (2.0 + work.again_share);
    switch (action.kind) {
      case PipelineAction::Kind::Forward:
        return chunk.forward() + exchanges * forward_share;
      case PipelineAction::Kind::Backward:
        return chunk.backward() + exchanges * (1.0 - forward_share);
      case PipelineAction::Kind::WeightGradients:
        break;
    }
    return chunk.weight_gradients();
  };
  const int first_rank = 0;
  const GroupSpread line = spread_of(layout.rank_groups(), layout::GroupKind::Pp,
                                     first_rank, machine.node_ranks);
  const double message = layout.shape.pp == 1
                             ? 0.0
                             : seconds_of(machine, line, layout::Exchange::SendRecv, 1,
                                          static_cast<double>(passes.boundary_bytes()));
  const std::vector<RankTimes> played = play(plan, action_seconds, message);
  double passes_end = 0.0;
  size_t busiest = 0;
  for (size_t rank = 0; rank < played.size(); ++rank) {
    passes_end = std::max(passes_end, played[rank].end);
    if (played[rank].busy > played[busiest].busy) busiest = rank;
  }
  const RankWork& work = works[busiest];
  StepEstimate step;
  const auto add = [&](const char* name, double seconds, double hidden = 0.0) {
    const double beside = std::min(seconds, hidden);
    if (seconds <= 0.0) return;
    step.parts.push_back({name, seconds - beside, beside});
    step.seconds += seconds - beside;
  };
  ForwardSeconds all;
  for (const ForwardSeconds& chunk : work.chunks) all.add(chunk);
  add("matrix products", 3.0 * all.products * micro_batches);
  add("attention", 3.0 * all.attention * micro_batches);
  add("norms, activations and copies",
      (ForwardSeconds::kWritten + ForwardSeconds::kReadBack) * all.moved * micro_batches);
  add("computed again", all.again() * micro_batches);
  add("exchanges over tp", work.of(TrafficKind::Tensor));
  add("exchanges over cp", work.of(TrafficKind::Context));
  add("exchanges over ep", work.of(TrafficKind::Experts));
  const double waits = passes_end - played[busiest].busy;
  add("waiting for other stages", waits);
  // Beside which passes a bucket's exchange runs: those of a step where each micro batch
  // has one (ZeRO 2 and 3), else the last backward.
  const double backward = all.backward() + all.weight_gradients();
  const double reduced = work.of(TrafficKind::Gradients);
  add("gradients of replicas", reduced,
      std::min(reduced * (1.0 - 1.0 / std::max(1.0, work.reductions)),
               layout.zero >= 2 ? backward * micro_batches : backward));
  add("optimizer", work.update);
  const double gathered = work.of(TrafficKind::Weights);
  add("weights gathered", gathered,
      layout.zero >= 3 ? (all.forward() + backward) * micro_batches : 0.0);
  step.bubble = step.seconds > 0.0 ? waits / step.seconds : 0.0;
  const auto tokens = static_cast<double>(layout.batch.tokens_per_step);
  step.tokens_per_s = tokens / step.seconds;
  if (machine.peak > 0.0) {
    const FlopsPerToken flops = run.model.flops_per_token(run.config.data.seq_len);
    const double peak = machine.peak * static_cast<double>(layout.shape.world());
    step.mfu = flops.causal * step.tokens_per_s / peak;
    step.mfu_full = flops.full * step.tokens_per_s / peak;
  }
  return step;
}

}  // namespace longhaul::plan
