// The part of the bounds that follows from parameters and from how their state is cut.
#include <algorithm>
#include <numeric>

#include "longhaul/plan/bounds.h"
#include "longhaul/plan/step_estimate.h"

namespace longhaul::plan {
namespace {

using layout::GroupKind;
using layout::Verb;

/// Bounds are lowered by this share, which is more than sums of numbers round.
constexpr double kRounding = 1e-9;

double size_of(StateType type) { return type == StateType::Fp32 ? 4.0 : 2.0; }

/// Returns the exposed seconds, at least, of exchanges that run beside computing: all but
/// one of at most `calls` exchanges have something beside them.
double exposed(double seconds, double calls, double longest) {
  return std::max(seconds / std::max(1.0, calls), seconds - longest);
}

}  // namespace

double LayoutBound::all_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

double LayoutBound::all_seconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) * (1.0 - kRounding);
}

LayoutBounds::Elements LayoutBounds::elements_of(const UnitDescription& unit,
                                                 bool frozen) const {
  Elements elements;
  for (const ParameterDescription& p : unit.parameters) {
    if ((run_.frozen && run_.frozen(p.name)) != frozen) continue;
    elements.count += 1.0;
    if (p.expert && p.expert->index * at_.ep / p.expert->of != 0) continue;
    const auto slice =
        layout::plan_parameter(layout_.tensor, {p.whole(), p.split}, 0).slice;
    const auto size = static_cast<double>(slice.num_elements());
    if (slice.extent.size() <= 1) {
      elements.vectors += size;
    } else {
      (p.expert ? elements.experts : elements.matrices) += size;
    }
  }
  return elements;
}

LayoutBounds::StageElements LayoutBounds::elements_of_stage(int32_t number) {
  auto& of_unit = unit_elements_[at_.ep];
  const auto& units = run_.model.units;
  if (of_unit.empty()) {
    for (const UnitDescription& unit : units) {
      of_unit.push_back({elements_of(unit, false), elements_of(unit, true)});
    }
  }
  const auto add = [](Elements& all, const Elements& more) {
    all.matrices += more.matrices;
    all.experts += more.experts;
    all.vectors += more.vectors;
    all.count += more.count;
  };
  const auto size = [](const Elements& one) { return one.matrices + one.experts; };
  StageElements stage;
  const Elements* block = nullptr;
  bool alike = true;
  double not_held = 0.0;
  const auto hold = [&](const Elements& unit, double times) {
    if (times * size(unit) <= stage.whole_matrices + stage.whole_experts) return;
    stage.whole_matrices = times * unit.matrices;
    stage.whole_experts = times * unit.experts;
  };
  for (int32_t chunk = 0; chunk < at_.virtual_stages; ++chunk) {
    const StageSpec& spec = cut().stages[stage_of(chunk, number)];
    double blocks = 0.0;
    for (size_t i = 0; i < units.size(); ++i) {
      if (!is_in_stage(units[i], spec)) continue;
      const Elements& unit = of_unit[i][0];
      add(stage.trained, unit);
      add(stage.frozen, of_unit[i][1]);
      hold(unit, 1.0);
      if (units[i].kind != UnitKind::Block) continue;
      const bool same = block == nullptr || (block->matrices == unit.matrices &&
                                             block->experts == unit.experts);
      alike = alike && same;
      if (blocks > 0.0 && same) hold(unit, 2.0);
      block = &unit;
      blocks += 1.0;
    }
    // Two buffers hold the blocks that the pass before has left.
    not_held += std::max(0.0, blocks - 2.0);
    // The last stage holds a tied table once more.
    if (spec.head && !spec.embedding && layout_.tied) {
      UnitDescription copy;
      for (const ParameterDescription& p : units.front().parameters) {
        if (p.name == run_.model.tied->embedding) copy.parameters.push_back(p);
      }
      add(stage.trained, elements_of(copy, false));
      add(stage.frozen, elements_of(copy, true));
    }
  }
  if (block != nullptr && alike && config_.memory.gathered_gb == 0.0) {
    stage.again_matrices = not_held * block->matrices;
    stage.again_experts = not_held * block->experts;
  }
  return stage;
}

const std::vector<LayoutBounds::StageElements>& LayoutBounds::elements() {
  const auto [found, fresh] = elements_.try_emplace({at_.ep, at_.pp, at_.virtual_stages});
  if (fresh) {
    for (int32_t stage = 0; stage < at_.pp; ++stage) {
      found->second.push_back(elements_of_stage(stage));
    }
  }
  return found->second;
}

CauseBytes LayoutBounds::bytes_of(const Variant& variant, const StageElements& elements,
                                  const StagePasses& stage) const {
  const PrecisionSection& precision = config_.precision;
  const double weight = precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
  const bool shared =
      precision.compute == ComputeType::Fp32 || precision.master == MasterType::Bf16Sr;
  const double shards = variant.shards;
  const double expert_shards = std::max(1, variant.shards / at_.ep);
  const auto owned = [&](const Elements& e) {
    return (e.matrices + e.vectors) / shards + e.experts / expert_shards;
  };
  const auto held = [&](const Elements& e, bool cut) {
    if (!cut) return e.matrices + e.vectors + e.experts;
    return e.vectors + e.matrices / shards + e.experts / expert_shards;
  };
  const bool cut_weights = variant.zero >= 3, cut_gradients = variant.zero >= 2;
  const double whole =
      elements.whole_matrices + (expert_shards > 1.0 ? elements.whole_experts : 0.0);
  CauseBytes bytes{};
  const auto at = [&](MemoryCause cause) -> double& {
    return bytes[static_cast<size_t>(cause)];
  };
  at(MemoryCause::Weights) =
      weight * (held(elements.trained, cut_weights) + held(elements.frozen, cut_weights));
  at(MemoryCause::Gradients) =
      size_of(precision.gradients) * held(elements.trained, cut_gradients);
  if (!shared) {
    at(MemoryCause::Masters) = 4.0 * (owned(elements.trained) + owned(elements.frozen));
  }
  at(MemoryCause::Moments) = 2.0 * size_of(precision.moments) * owned(elements.trained);
  at(MemoryCause::Whole) = whole * ((cut_weights ? weight : 0.0) +
                                    (cut_gradients ? size_of(precision.gradients) : 0.0));
  at(MemoryCause::Activations) = stage.activations;
  at(MemoryCause::Rest) = stage.rest;
  return bytes;
}

double LayoutBounds::exchange(const GroupSpread& group, Verb verb, double bytes,
                              double calls) const {
  // Bytes of a sum are those of the rank with an even part.
  const layout::TrafficLine line = {layout::TrafficKind::Gradients, GroupKind::Shard,
                                    verb, static_cast<int64_t>(calls),
                                    static_cast<int64_t>(bytes)};
  return seconds_of(run_.machine, group, line);
}

void LayoutBounds::add_state_seconds(const Variant& variant,
                                     const StageElements& elements,
                                     const StagePasses& stage,
                                     CauseSeconds& seconds) const {
  const PrecisionSection& precision = config_.precision;
  const double wire = size_of(precision.reduce);
  const double compute = precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
  const double data = at_.data_ranks(run_.ranks);
  const double m = micro_batches_;
  const double times = variant.zero >= 2 ? m : 1.0;
  double reduced = 0.0, gathered = 0.0, owned = 0.0;
  const auto count = [&](double matrices, double vectors, double frozen, double again,
                         double shards, double of, const GroupSpread& shard,
                         const GroupSpread& replicas) {
    const double mine = (matrices + vectors) / shards;
    const double replica_count = of / shards;
    const double summed = 2.0 * (replica_count - 1.0) / replica_count * mine * wire;
    owned += mine;
    reduced += exchange(replicas, Verb::AllReduce, summed, mine > 0.0 ? 1.0 : 0.0);
    if (shards <= 1.0) return;
    const double others = shards - 1.0;
    reduced += exchange(shard, Verb::ReduceScatter,
                        others / shards * (times * matrices + vectors) * wire,
                        mine > 0.0 ? 1.0 : 0.0);
    const double once = matrices + vectors + frozen;
    const double all = variant.zero >= 3 ? std::max(once, 2.0 * m * again) : once;
    gathered += exchange(shard, Verb::AllGather, others / shards * all * compute, 1.0);
  };
  const Elements& t = elements.trained;
  const Elements& f = elements.frozen;
  count(t.matrices, t.vectors, f.matrices + f.vectors, elements.again_matrices,
        variant.shards, data, variant.shard, variant.replicas);
  if (t.experts > 0.0) {
    count(t.experts, 0.0, f.experts, elements.again_experts,
          std::max(1, variant.shards / at_.ep), data / at_.ep, variant.expert_shard,
          variant.expert_replicas);
  }
  const double forward = stage.all.forward;
  const double backward = stage.all.backward + stage.all.weight_gradients;
  const double beside_gradients = times * backward;
  // Only gradients of matrices are reduced after each micro batch.
  const double hidden =
      t.matrices > 0.0 ? std::min(reduced * (1.0 - 1.0 / times), beside_gradients) : 0.0;
  const double beside_weights =
      variant.zero >= 3 ? m * (forward + backward) - hidden : forward;
  const auto at = [&](TimeCause cause) -> double& {
    return seconds[static_cast<size_t>(cause)];
  };
  at(TimeCause::Gradients) = exposed(reduced, t.count * (times + 2.0), beside_gradients);
  at(TimeCause::Weights) =
      exposed(gathered, (t.count + f.count) * (variant.zero >= 3 ? 3.0 * m + 2.0 : 1.0),
              beside_weights);
  at(TimeCause::Optimizer) = bytes_of_update(precision) * owned / run_.machine.memory;
}

LayoutBound LayoutBounds::bound_of(const Variant& variant) {
  const std::vector<StageElements>& of_stage = elements();
  LayoutBound bound;
  bound.between = between_;
  const bool alike = stages_lie_alike();
  double most = -1.0, least = -1.0;
  for (size_t i = 0; i < of_stage_.size(); ++i) {
    const StagePasses& stage = of_stage_[i];
    const CauseBytes bytes = bytes_of(variant, of_stage[i], stage);
    const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    if (all > most) {
      most = all;
      bound.bytes = bytes;
    }
    // The step counts the stage that computes longest. Where exchanges are left out, that
    // may be any stage.
    if (alike && stage.busy < busiest_ * (1.0 - kRounding)) continue;
    CauseSeconds seconds{};
    const UnitNumbers& work = stage.all;
    const auto at = [&](TimeCause cause) -> double& {
      return seconds[static_cast<size_t>(cause)];
    };
    at(TimeCause::Computing) = micro_batches_ * (work.forward + work.backward -
                                                 work.again + work.weight_gradients);
    at(TimeCause::Again) = micro_batches_ * work.again;
    at(TimeCause::Tensor) = micro_batches_ * work.exchanges[0];
    at(TimeCause::Context) = micro_batches_ * work.exchanges[1];
    at(TimeCause::Experts) = micro_batches_ * work.exchanges[2];
    at(TimeCause::Waiting) = end_ - stage.busy;
    add_state_seconds(variant, of_stage[i], stage, seconds);
    const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (least >= 0.0 && sum >= least) continue;
    least = sum;
    bound.seconds = seconds;
  }
  return bound;
}

}  // namespace longhaul::plan
