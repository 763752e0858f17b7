#include "longhaul/layout/layout_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/partition.h"
#include "longhaul/layout/rules.h"

namespace longhaul::layout {
namespace {

/// Returns the operations of a forward pass over `seq_len` tokens in the parts of a
/// model.
LayerCosts layer_costs(const ModelDescription& model, int64_t seq_len) {
  LayerCosts costs;
  for (const UnitDescription& unit : model.units) {
    const double cost = forward_cost(unit, seq_len);
    if (unit.kind == UnitKind::Embedding) costs.embedding = cost;
    if (unit.kind == UnitKind::Block) costs.layers.push_back(cost);
    if (unit.kind == UnitKind::Head) costs.head = cost;
  }
  return costs;
}

std::vector<StageSpec> place_layers(const RunConfig& config,
                                    const ModelDescription& model) {
  const ParallelSection& p = config.parallel;
  const auto cut = p.partition.empty()
                       ? partition_layers(layer_costs(model, config.data.seq_len),
                                          p.pp * p.virtual_stages)
                       : partition_layers(p.partition);
  std::vector<StageSpec> placed;
  for (const StageLayers& part : cut) {
    placed.push_back({part.first_layer, part.end_layer, placed.empty(),
                      placed.size() + 1 == cut.size()});
  }
  return placed;
}

/// Places a parameter's shard. For a tied embedding, `tied_first` says whether this is
/// the first stage's copy.
PlacedParameter place_parameter(ParameterShard shard, int unit, bool frozen,
                                std::optional<bool> tied_first) {
  PlacedParameter placed{std::move(shard.slice), unit, kNoSum, shard.counted, frozen,
                         /*expert=*/false};
  if (shard.sum == GradientSum::First) placed.sum_group = kTensorFirst;
  if (shard.sum == GradientSum::Tp) placed.sum_group = kTensorSum;
  if (shard.sum == GradientSum::KeyReplicas) placed.sum_group = kKeySum;
  if (tied_first) {
    LH_ASSERT(placed.sum_group == kNoSum, "a tied embedding with a sum of its own");
    placed.sum_group = kTiedSum;
    placed.counted = placed.counted && *tied_first;
  }
  return placed;
}

}  // namespace

const StageSpec& LayoutDescription::stage(int rank, int chunk) const {
  const int pp = mesh_index_of(shape, rank).pp;
  return stages.at(static_cast<size_t>(chunk) * static_cast<size_t>(shape.pp) +
                   static_cast<size_t>(pp));
}

FlatSharding LayoutDescription::sharding(int rank) const {
  const Groups all = rank_groups();
  const GroupPlace shard = all.place(GroupKind::Shard, rank);
  const GroupPlace replica = all.place(GroupKind::Replicas, rank);
  const bool several = shards > 1;
  FlatSharding sharding{shard.index,  shard.size,           replica.index,
                        replica.size, several && zero >= 2, several && zero >= 3};
  sharding.apart = apart;
  if (ep > 1) {
    const GroupPlace mine = all.place(GroupKind::ExpertShard, rank);
    const GroupPlace same = all.place(GroupKind::ExpertReplicas, rank);
    sharding.experts = {mine.index, mine.size, same.index, same.size};
  }
  return sharding;
}

GroupKind LayoutDescription::shard_group(const BucketShape& bucket) {
  return bucket.expert ? GroupKind::ExpertShard : GroupKind::Shard;
}

GroupKind LayoutDescription::replica_group(const BucketShape& bucket) {
  return bucket.expert ? GroupKind::ExpertReplicas : GroupKind::Replicas;
}

GroupKind LayoutDescription::copy_group(int sum_group) {
  if (sum_group == kKeySum) return GroupKind::KeyReplicas;
  if (sum_group == kTiedSum) return GroupKind::Tied;
  LH_ASSERT(sum_group == kTensorSum || sum_group == kTensorFirst, "sum group {}",
            sum_group);
  return GroupKind::Tp;
}

PipelinePlan LayoutDescription::training_plan() const {
  return make_pipeline_plan(pipeline, shape.pp, chunks, batch.accumulation);
}

std::vector<PlacedParameter> LayoutDescription::parameters(
    const ModelDescription& model, int rank,
    const std::function<bool(const std::string&)>& frozen) const {
  const MeshIndex index = mesh_index_of(shape, rank);
  const GroupPlace experts = rank_groups().place(GroupKind::Ep, rank);
  std::vector<PlacedParameter> placed;
  int unit = 0;
  const auto place = [&](const ParameterDescription& p) {
    ParameterShard shard = plan_parameter(tensor, {p.whole(), p.split}, index.tp);
    std::optional<bool> tied_first;
    if (tied && p.name == model.tied->embedding) tied_first = index.pp == 0;
    placed.push_back(
        place_parameter(std::move(shard), unit, frozen && frozen(p.name), tied_first));
    placed.back().expert = p.expert.has_value();
    placed.back().joint = p.joint;
    // A rank has no rows of an expert that another rank of its ep group has.
    if (p.expert && p.expert->index * ep / p.expert->of != experts.index) {
      placed.back().slice.extent[0] = 0;
    }
  };
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const StageSpec& spec = stage(rank, chunk);
    for (const UnitDescription& described : model.units) {
      if (!is_in_stage(described, spec)) continue;
      std::ranges::for_each(described.parameters, place);
      const ParameterDescription* copy = model.tied_copy(spec);
      if (described.kind == UnitKind::Head && copy != nullptr) place(*copy);
      ++unit;
    }
  }
  return placed;
}

std::vector<ChunkUnits> LayoutDescription::chunk_units(const ModelDescription& model,
                                                       int rank) const {
  std::vector<ChunkUnits> all;
  int next = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ChunkUnits units;
    units.spec = stage(rank, chunk);
    if (units.spec.embedding) units.embedding = next++;
    units.first_block = next;
    next += static_cast<int>(units.spec.end_layer - units.spec.first_layer);
    if (units.spec.head) {
      units.head = model.tied && units.spec.embedding ? units.embedding : next;
      if (model.units.back().has_layers()) units.head_layers = next;
      ++next;
    }
    all.push_back(units);
  }
  return all;
}

RankUnits LayoutDescription::rank_units(const ModelDescription& model, int rank,
                                        const std::vector<BucketShape>& buckets) const {
  RankUnits units;
  units.chunks = chunk_units(model, rank);
  units.gathered_bytes = layout::gathered_bytes(buckets, weight_bytes);
  const ChunkUnits& last = units.chunks.back();
  const int units_here = std::max(last.head, last.block(last.spec.end_layer)) + 1;
  units.gathered_bytes.resize(static_cast<size_t>(units_here));
  units.reduce_each = sharding(rank).grads;
  units.delayed = pipeline == PipelineKind::ZeroBubbleH1;
  if (std::ranges::any_of(units.gathered_bytes, [](int64_t one) { return one > 0; })) {
    const int stage = mesh_index_of(shape, rank).pp;
    units.slots = gather_slots(training_plan(), stage, units, gathered_budget);
  }
  return units;
}

std::vector<int64_t> LayoutDescription::partition() const {
  std::vector<int64_t> sizes;
  for (const StageSpec& spec : stages) sizes.push_back(spec.end_layer - spec.first_layer);
  return sizes;
}

std::string LayoutDescription::describe() const {
  const std::string mesh = fmt::format("pp {} x dp {} x cp {} x tp {}", shape.pp,
                                       shape.dp, shape.cp, shape.tp);
  return fmt::format("{}{}, zero {}", mesh, ep > 1 ? fmt::format(", ep {}", ep) : "",
                     zero);
}

MeshShape mesh_of(const RunConfig& config, int64_t ranks) {
  const ParallelSection& p = config.parallel;
  return {static_cast<int>(p.pp), static_cast<int>(ranks / (p.pp * p.cp * p.tp)),
          static_cast<int>(p.cp), static_cast<int>(p.tp)};
}

std::vector<int64_t> partition_by_average(const RunConfig& config,
                                          const ModelDescription& model) {
  const ParallelSection& p = config.parallel;
  if (!p.partition.empty()) return p.partition;
  LayerCosts costs = layer_costs(model, config.data.seq_len);
  const double all = std::accumulate(costs.layers.begin(), costs.layers.end(), 0.0);
  std::ranges::fill(costs.layers, all / static_cast<double>(costs.layers.size()));
  std::vector<int64_t> sizes;
  for (const StageLayers& part : partition_layers(costs, p.pp * p.virtual_stages)) {
    sizes.push_back(part.size());
  }
  return sizes;
}

LayoutDescription place_layout(const RunConfig& config, const ModelLimits& limits,
                               int64_t ranks, const Placement& placement) {
  const ParallelSection& p = config.parallel;
  LayoutDescription layout;
  layout.batch = derive_batch(config, ranks);
  layout.shape = mesh_of(config, ranks);
  layout.zero = static_cast<int>(p.zero);
  layout.shards = std::get<int>(shard_group_size(config, layout.shape, placement));
  layout.ep = static_cast<int>(p.ep);
  layout.chunks = static_cast<int>(p.virtual_stages);
  if (p.pp > 1) layout.pipeline = p.pipeline;
  layout.stages = place_layers(config, *limits.model);
  layout.tied = limits.model->tied && p.pp > 1;
  layout.tensor = {p.tp, p.sequence && p.tp > 1};
  layout.shared_key_heads = shared_key_heads(p.tp, limits);
  if (p.cp > 1) layout.context.emplace(config.data.seq_len, layout.shape.cp);
  // The device itself says so when a run starts; a plan knows it by the name.
  layout.apart = config.run.device == "neuron";
  layout.weight_bytes = config.precision.compute == ComputeType::Fp32 ? 4 : 2;
  if (p.zero == 3 && layout.shards > 1) {
    // The limit of 1e18 bytes, more than any rank holds, keeps the number in 64 bits.
    layout.gathered_budget =
        static_cast<int64_t>(std::round(std::min(1e9 * config.memory.gathered_gb, 1e18)));
  }
  return layout;
}

LayoutDescription describe_layout(const RunConfig& config, const ModelDescription& model,
                                  int64_t ranks, const Placement& placement) {
  const ModelLimits limits(model);
  const auto broken = broken_on_ranks(config, limits, ranks, placement);
  if (!broken.empty()) {
    refusal_of(broken.front(), config, limits, config.model.config).fail(config);
  }
  return place_layout(config, limits, ranks, placement);
}

namespace {

int64_t bytes_of(StateType type) { return type == StateType::Fp32 ? 4 : 2; }

}  // namespace

StateBytes state_bytes(const std::vector<BucketPlan>& buckets,
                       const PrecisionSection& precision, bool has_base) {
  const int64_t compute = precision.compute == ComputeType::Fp32 ? 4 : 2;
  StateBytes total;
  for (const BucketPlan& bucket : buckets) {
    const int64_t owned = bucket.owned.size();
    const auto kept = [&](bool stays) {
      const int64_t whole = stays ? bucket.num_elements : 0;
      return whole + (!stays || bucket.owned_apart ? owned : 0);
    };
    total.weights += compute * kept(bucket.weights_stay);
    const bool shared =
        precision.compute == ComputeType::Fp32 || precision.master == MasterType::Bf16Sr;
    if (!shared && !(bucket.frozen && has_base)) total.masters += 4 * owned;
    if (bucket.frozen) continue;
    total.gradients += bytes_of(precision.gradients) * kept(bucket.grads_stay);
    total.moments += 2 * bytes_of(precision.moments) * owned;
  }
  return total;
}

int64_t checkpoint_bytes(const ModelDescription& model, const PrecisionSection& precision,
                         const std::function<bool(const std::string&)>& frozen) {
  const int64_t master = precision.master == MasterType::Bf16Sr ? 2 : 4;
  int64_t bytes = 0;
  for (const ParameterDescription& p : model.parameters()) {
    if (!p.trained) continue;
    const bool trained = !frozen || !frozen(p.name);
    bytes +=
        p.num_elements() * (master + (trained ? 2 * bytes_of(precision.moments) : 0));
  }
  return bytes;
}

}  // namespace longhaul::layout
