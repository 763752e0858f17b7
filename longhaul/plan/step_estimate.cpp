#include "longhaul/plan/step_estimate.h"

#include <algorithm>
#include <map>

#include "longhaul/plan/played_pipeline.h"
#include "longhaul/plan/unit_seconds.h"

namespace longhaul::plan {
namespace {

using layout::PipelineAction;
using layout::TrafficKind;

/// The work of the ranks of one pipeline stage, chunk by chunk, and their exchanges.
struct RankWork {
  std::vector<ForwardSeconds> chunks;
  std::map<TrafficKind, double> exchanges;  ///< seconds of a step
  double reductions = 0.0;                  ///< buckets that are reduced in a step
  double gathers = 0.0;                     ///< buckets that are gathered in a step
  double update = 0.0;
  double again_share = 0.0;  ///< share of the chunks' blocks that are computed again

  /// Returns the seconds of a step's exchanges that hold a pass up.
  double within_passes() const {
    return of(TrafficKind::Tensor) + of(TrafficKind::Context) + of(TrafficKind::Experts);
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
  const layout::RankCosts& costs = run.costs[static_cast<size_t>(pp)];
  RankWork work;
  double blocks = 0.0;
  double again = 0.0;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    ForwardSeconds seconds;
    for (const UnitDescription& unit : run.model.units) {
      if (!is_in_stage(unit, layout.stage(rank, chunk))) continue;
      seconds.add(
          forward_seconds(unit, passes, layout, run.config.data.seq_len, machine));
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
    work.exchanges[line.kind] += seconds_of(machine, spread, line);
    if (line.kind == TrafficKind::Gradients) {
      work.reductions += static_cast<double>(line.calls);
    }
    if (line.kind == TrafficKind::Weights) {
      work.gathers += static_cast<double>(line.calls);
    }
  }
  const PrecisionSection& precision = run.config.precision;
  const double moment = precision.moments == StateType::Fp32 ? 4.0 : 2.0;
  work.update = bytes_of_update(precision) * static_cast<double>(costs.state.moments) /
                (2.0 * moment) / machine.memory;
  return work;
}

/// When the passes of a step end, on the stage that computes longest.
struct PlayedPasses {
  size_t busiest = 0;
  double waits = 0.0;  ///< seconds in which that stage does not compute
};

PlayedPasses play_passes(const PlannedRun& run, const std::vector<RankWork>& works,
                         const layout::PipelinePlan& plan, double message) {
  const auto micro_batches = static_cast<double>(run.layout.batch.accumulation);
  const auto seconds = [&](int rank, const PipelineAction& action) {
    const RankWork& work = works[static_cast<size_t>(rank)];
    const ForwardSeconds& chunk = work.chunks[static_cast<size_t>(action.chunk)];
    const double exchanges =
        work.within_passes() / micro_batches / static_cast<double>(work.chunks.size());
    // The share that a forward has: what is computed again exchanges again.
    const double share = 1.0 / (2.0 + work.again_share);
    switch (action.kind) {
      case PipelineAction::Kind::Forward:
        return chunk.forward() + exchanges * share;
      case PipelineAction::Kind::Backward:
        return chunk.backward() + exchanges * (1.0 - share);
      case PipelineAction::Kind::WeightGradients:
        break;
    }
    return chunk.weight_gradients();
  };
  const std::vector<RankTimes> played = play(plan, seconds, message);
  PlayedPasses passes;
  double end = 0.0;
  for (size_t rank = 0; rank < played.size(); ++rank) {
    end = std::max(end, played[rank].end);
    if (played[rank].busy > played[passes.busiest].busy) passes.busiest = rank;
  }
  passes.waits = end - played[passes.busiest].busy;
  return passes;
}

/// Returns the parts of a step on a rank that waits for other stages for `waits` seconds.
std::vector<TimePart> parts_of(const RankWork& work, const PlannedRun& run,
                               double waits) {
  std::vector<TimePart> parts;
  const auto add = [&](const char* name, double seconds, double hidden = 0.0) {
    if (seconds > 0.0) parts.push_back({name, seconds - hidden, hidden});
  };
  const auto micro_batches = static_cast<double>(run.layout.batch.accumulation);
  ForwardSeconds all;
  for (const ForwardSeconds& chunk : work.chunks) all.add(chunk);
  add("matrix products", (2.0 * all.products + all.weight_gradients()) * micro_batches);
  add("attention", 3.0 * all.attention * micro_batches);
  add("norms, activations and copies",
      (ForwardSeconds::kWritten + ForwardSeconds::kReadBack) * all.moved * micro_batches);
  add("computed again", all.again() * micro_batches);
  add("exchanges over tp", work.of(TrafficKind::Tensor));
  add("exchanges over cp", work.of(TrafficKind::Context));
  add("exchanges over ep", work.of(TrafficKind::Experts));
  add("waiting for other stages", waits);
  // Where each micro batch has its exchanges (ZeRO 2 and 3), they run beside all passes,
  // else beside the last backward and the first forward of the next step. The exchange
  // that comes last, or first, has nothing beside it.
  const auto beside = [](double seconds, double exchanges, double longest) {
    return std::min(seconds * (1.0 - 1.0 / std::max(1.0, exchanges)), longest);
  };
  const int zero = run.layout.zero;
  const double forward = all.forward();
  const double backward = all.backward() + all.weight_gradients();
  const double reduced = work.of(TrafficKind::Gradients);
  const double reduced_beside =
      beside(reduced, work.reductions, zero >= 2 ? backward * micro_batches : backward);
  add("gradients of replicas", reduced, reduced_beside);
  add("optimizer", work.update);
  const double gathered = work.of(TrafficKind::Weights);
  add("weights gathered", gathered,
      beside(
          gathered, work.gathers,
          zero >= 3 ? (forward + backward) * micro_batches - reduced_beside : forward));
  return parts;
}

}  // namespace

double bytes_of_update(const PrecisionSection& precision) {
  const auto size = [](StateType type) { return type == StateType::Fp32 ? 4.0 : 2.0; };
  const double master = precision.master == MasterType::Fp32 ? 4.0 : 2.0;
  const double weight = precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
  return 2.0 * size(precision.gradients) + 2.0 * master + 4.0 * size(precision.moments) +
         (weight == master ? 0.0 : weight);
}

StepEstimate estimate_step(const PlannedRun& run, const Machine& machine) {
  const layout::LayoutDescription& layout = run.layout;
  const layout::Passes passes =
      layout::passes_of(run.config, run.model, layout, run.config.run.device);
  std::vector<RankWork> works;
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    works.push_back(work_of(run, passes, machine, pp));
  }
  const GroupSpread line =
      spread_of(layout.rank_groups(), layout::GroupKind::Pp, 0, machine.node_ranks);
  const double message = seconds_of(machine, line,
                                    {TrafficKind::Pipeline, layout::GroupKind::Pp,
                                     layout::Verb::SendRecv, 1, passes.boundary_bytes()});
  const PlayedPasses played = play_passes(run, works, layout.training_plan(), message);
  StepEstimate step;
  step.parts = parts_of(works[played.busiest], run, played.waits);
  for (const TimePart& part : step.parts) step.seconds += part.seconds;
  step.bubble = played.waits / step.seconds;
  step.tokens_per_s = static_cast<double>(layout.batch.tokens_per_step) / step.seconds;
  if (machine.peak > 0.0) {
    const FlopsPerToken flops = run.model.flops_per_token(run.config.data.seq_len);
    const double peak = machine.peak * static_cast<double>(layout.shape.world());
    step.mfu_causal = flops.causal * step.tokens_per_s / peak;
    step.mfu = flops.full * step.tokens_per_s / peak;
  }
  return step;
}

}  // namespace longhaul::plan
