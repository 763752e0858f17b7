// The part of the bounds that follows from parameters and from how their state is cut.
#include <algorithm>
#include <array>
#include <numeric>
#include <span>

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

void LayoutBounds::Elements::add(const Elements& more) {
  matrices += more.matrices;
  experts += more.experts;
  vectors += more.vectors;
  count += more.count;
  matrix_units += more.matrix_units;
  expert_units += more.expert_units;
}

LayoutBounds::Elements LayoutBounds::Elements::times(double number) const {
  return {number * matrices, number * experts,      number * vectors,
          number * count,    number * matrix_units, number * expert_units};
}

std::array<LayoutBounds::Elements, 2> LayoutBounds::elements_of(
    std::span<const ParameterDescription> parameters) const {
  std::array<Elements, 2> all;
  for (const ParameterDescription& p : parameters) {
    Elements& elements = all[run_.frozen && run_.frozen(p.name) ? 1 : 0];
    elements.count += 1.0;
    if (p.expert && p.expert->index * at_.ep / p.expert->of != 0) continue;
    auto size = static_cast<double>(p.num_elements());
    if (p.split) {
      const int64_t whole = p.split_size();
      const auto part = format::part_of(p.split, whole, layout_.tensor.rank(0));
      size = size / static_cast<double>(whole) * static_cast<double>(part.size());
    }
    if (p.shape.size() <= 1) {
      elements.vectors += size;
    } else {
      (p.expert ? elements.experts : elements.matrices) += size;
    }
  }
  for (Elements& elements : all) {
    elements.matrix_units = elements.matrices > 0.0 ? 1.0 : 0.0;
    elements.expert_units = elements.experts > 0.0 ? 1.0 : 0.0;
  }
  return all;
}

LayoutBounds::StageElements LayoutBounds::elements_of_stage(int32_t number) {
  auto& of_unit = unit_elements_[at_.ep];
  const auto& units = run_.model.units;
  if (of_unit.empty()) {
    for (const UnitDescription& unit : units) {
      of_unit.push_back(elements_of(unit.parameters));
    }
  }
  const auto size = [](const Elements& one) { return one.matrices + one.experts; };
  StageElements stage;
  const std::array<Elements, 2>* block = nullptr;
  const auto is_like = [&](const std::array<Elements, 2>& one) {
    return std::ranges::equal(one, *block, [](const Elements& a, const Elements& b) {
      return a.matrices == b.matrices && a.experts == b.experts;
    });
  };
  bool alike = true;
  double not_held = 0.0, all_blocks = 0.0;
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
      stage.trained.add(unit);
      stage.frozen.add(of_unit[i][1]);
      hold(unit, 1.0);
      if (units[i].kind != UnitKind::Block) continue;
      const bool same = block == nullptr || is_like(of_unit[i]);
      alike = alike && same;
      if (blocks > 0.0 && same) hold(unit, 2.0);
      block = &of_unit[i];
      blocks += 1.0;
    }
    // Two buffers hold the blocks that the pass before has left.
    not_held += std::max(0.0, blocks - 2.0);
    all_blocks += blocks;
    if (const ParameterDescription* copy = run_.model.tied_copy(spec)) {
      const auto table = elements_of({copy, 1});
      stage.trained.add(table[0]);
      stage.frozen.add(table[1]);
    }
  }
  if (block != nullptr && alike && config_.memory.gathered_gb == 0.0) {
    Elements both = (*block)[0];
    both.add((*block)[1]);
    stage.again = both.times(not_held);
    stage.again_of_round = both.times(std::max(0.0, all_blocks - 2.0));
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
    const double of_frozen = run_.model.has_base ? 0.0 : owned(elements.frozen);
    at(MemoryCause::Masters) = 4.0 * (owned(elements.trained) + of_frozen);
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
  // An interleaved pipeline goes through all chunks with as many micro batches as it has
  // stages, before it begins again.
  const double rounds = at_.pipeline == PipelineKind::Interleaved ? m / at_.pp : 0.0;
  double reduced = 0.0, gathered = 0.0, owned = 0.0;
  struct Part {
    double matrices, vectors, frozen;  ///< elements; those frozen are matrices
    double units, frozen_units;        ///< that have such matrices
    double again, again_units;         ///< gathered by a pass through each chunk
    double of_round, of_round_units;   ///< gathered by passes through all chunks
  };
  const auto count = [&](const Part& part, double shards, double of,
                         const GroupSpread& shard, const GroupSpread& replicas) {
    const double mine = (part.matrices + part.vectors) / shards;
    const double replica_count = of / shards;
    const double summed = 2.0 * (replica_count - 1.0) / replica_count * mine * wire;
    const double of_vectors = part.vectors > 0.0 ? 1.0 : 0.0;
    owned += mine;
    reduced += exchange(replicas, Verb::AllReduce, summed, part.units + of_vectors);
    if (shards <= 1.0) return;
    const double share = (shards - 1.0) / shards;
    reduced += exchange(shard, Verb::ReduceScatter,
                        share * (times * part.matrices + part.vectors) * wire,
                        times * part.units + of_vectors);
    double all = part.matrices + part.vectors;
    double calls = part.units + of_vectors;
    if (variant.zero >= 3) {  // weights that stay and are frozen are not gathered again
      all += part.frozen;
      calls += part.frozen_units;
      all = std::max({all, 2.0 * m * part.again, rounds * part.of_round});
      calls = std::max({calls, 2.0 * m * part.again_units, rounds * part.of_round_units});
    }
    gathered += exchange(shard, Verb::AllGather, share * all * compute, calls);
  };
  const Elements& t = elements.trained;
  const Elements& f = elements.frozen;
  const Elements& again = elements.again;
  const Elements& of_round = elements.again_of_round;
  count({t.matrices, t.vectors, f.matrices, t.matrix_units, f.matrix_units,
         again.matrices, again.matrix_units, of_round.matrices, of_round.matrix_units},
        variant.shards, data, variant.shard, variant.replicas);
  if (t.experts > 0.0) {
    count({t.experts, 0.0, f.experts, t.expert_units, f.expert_units, again.experts,
           again.expert_units, of_round.experts, of_round.expert_units},
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
  at(TimeCause::Weights) = exposed(
      gathered, variant.zero >= 3 ? (t.count + f.count) * (3.0 * m + 2.0) : t.count,
      beside_weights);
  at(TimeCause::Optimizer) = bytes_of_update(precision) * owned / run_.machine.memory;
}

LayoutBound LayoutBounds::bound_of(const Variant& variant,
                                   const std::vector<StageElements>& of_stage) const {
  LayoutBound bound;
  for (size_t i = 0; i < spreads_.size(); ++i) {
    bound.between[i] = spreads_[i].on_node < spreads_[i].ranks;
  }
  double most = -1.0;
  for (size_t i = 0; i < of_stage_.size(); ++i) {
    const CauseBytes bytes = bytes_of(variant, of_stage[i], of_stage_[i]);
    const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    if (all <= most) continue;
    most = all;
    bound.bytes = bytes;
  }
  if (most > run_.room) return bound;
  const bool alike = stages_lie_alike();
  double least = -1.0;
  for (size_t i = 0; i < of_stage_.size(); ++i) {
    const StagePasses& stage = of_stage_[i];
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
