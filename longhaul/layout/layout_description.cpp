#include "longhaul/layout/layout_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/partition.h"

namespace longhaul::layout {
namespace {

/// Returns the ranks of each dp x cp group on each machine. Throws ConfigError unless all
/// machines have equally many neighbouring ranks of a group.
int data_ranks_per_node(const MeshShape& shape, const Placement& placement) {
  const int size = shape.dp * shape.cp;
  int least = std::numeric_limits<int>::max();
  int most = 0;
  bool apart = false;
  for (int other = 0; other < shape.pp * shape.tp; ++other) {
    std::map<int, int> ranks;  // number of ranks on each machine
    int before = -1;
    for (int i = 0; i < size; ++i) {
      const int node = placement.node_of(rank_at(
          shape, {other / shape.tp, i / shape.cp, i % shape.cp, other % shape.tp}));
      apart = apart || (node != before && ranks.contains(node));
      ++ranks[node];
      before = node;
    }
    for (const auto& [node, count] : ranks) {
      least = std::min(least, count);
      most = std::max(most, count);
    }
  }
  if (least != most || apart) {
    throw ConfigError(
        "parallel",
        fmt::format("parallel.shard_group = \"node\" needs the same number of data "
                    "parallel ranks on every machine, side by side; here there are {} to "
                    "{}; start them so (srun --distribution=block), or give a number",
                    least, most));
  }
  return most;
}

/// Returns the number of ranks of dp x cp that share one copy of the state.
int shard_group_size(const RunConfig& config, const MeshShape& shape,
                     const Placement& placement) {
  if (config.parallel.zero == 0) return 1;
  const ShardGroup& group = config.parallel.shard_group;
  const int data = shape.dp * shape.cp;
  if (group.kind == ShardGroup::Kind::World) return data;
  if (group.kind == ShardGroup::Kind::Node) return data_ranks_per_node(shape, placement);
  const int64_t size = group.ranks;
  if (size < 1 || data % size != 0) {
    throw ConfigError(
        "parallel",
        fmt::format("parallel.shard_group = {} does not divide the {} ranks of dp x cp; "
                    "choose one of their divisors, or \"world\"",
                    size, data));
  }
  return static_cast<int>(size);
}

/// Returns the ranks that have all experts together, a number that divides dp x cp
/// (derive_batch). Throws ConfigError where shard groups hold parts of such ranks.
int expert_group_size(const RunConfig& config, const LayoutDescription& layout) {
  const int64_t ep = config.parallel.ep;
  if (ep % layout.shards == 0 || layout.shards % ep == 0) return static_cast<int>(ep);
  throw ConfigError(
      "parallel",
      fmt::format("parallel.ep = {} and the {} ranks of a shard group overlap in part; "
                  "choose parallel.shard_group or parallel.ep so that one divides the "
                  "other",
                  ep, layout.shards));
}

std::vector<StageSpec> place_layers(const RunConfig& config,
                                    const ModelDescription& model) {
  const ParallelSection& p = config.parallel;
  const int64_t stages = p.pp * p.virtual_stages;
  const int64_t layers = model.num_blocks();
  // Each block counts as much as all do on average.
  double blocks = 0.0;
  for (const UnitDescription& unit : model.units) {
    if (unit.kind == UnitKind::Block) blocks += forward_cost(unit, config.data.seq_len);
  }
  const LayerCosts costs = {blocks / static_cast<double>(layers),
                            forward_cost(model.units.front(), config.data.seq_len),
                            forward_cost(model.units.back(), config.data.seq_len)};
  const auto cut = p.partition.empty() ? partition_layers(layers, stages, costs)
                                       : partition_layers(layers, stages, p.partition);
  std::vector<StageSpec> placed;
  for (const StageLayers& part : cut) {
    placed.push_back({part.first_layer, part.end_layer, placed.empty(),
                      placed.size() + 1 == cut.size()});
  }
  return placed;
}

int checked_degree(int64_t degree, const char* key) {
  if (degree <= std::numeric_limits<int>::max()) return static_cast<int>(degree);
  throw ConfigError(
      "parallel",
      fmt::format("parallel.{} = {} is too large; use no more than the number of ranks",
                  key, degree));
}

/// Returns the bytes of memory.gathered_gb. Throws ConfigError where a stage's units do
/// not fit one after the other.
int64_t checked_budget(const RunConfig& config, const LayoutDescription& layout,
                       const ModelDescription& model) {
  // The limit keeps the number in 64 bits; no rank holds that much.
  const double asked = std::round(std::min(1e9 * config.memory.gathered_gb, 1e18));
  if (asked == 0.0) return 0;
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    const int rank = rank_at(layout.shape, {.pp = pp});
    const auto buckets =
        plan_buckets(layout.parameters(model, rank), layout.sharding(rank));
    const RankUnits units =
        layout.rank_units(model, rank, {buckets.begin(), buckets.end()});
    const auto least = static_cast<double>(slot_bytes(units.slots));
    if (asked >= least) continue;
    throw ConfigError("memory",
                      fmt::format("memory.gathered_gb = {} is too small: one unit in use "
                                  "and the next unit that is being gathered take {:.12g} "
                                  "GB on stage {}; give at least that, or 0",
                                  config.memory.gathered_gb, 1e-9 * least, pp));
  }
  return static_cast<int64_t>(asked);
}

/// Places a parameter's shard. For a tied embedding, `tied_first` says whether this is
/// the first stage's copy.
PlacedParameter place_parameter(format::ParameterShard shard, int unit, bool frozen,
                                std::optional<bool> tied_first) {
  PlacedParameter placed{std::move(shard.slice), unit, kNoSum, shard.counted, frozen,
                         /*expert=*/false};
  if (shard.sum == format::GradientSum::First) placed.sum_group = kTensorFirst;
  if (shard.sum == format::GradientSum::Tp) placed.sum_group = kTensorSum;
  if (shard.sum == format::GradientSum::KeyReplicas) placed.sum_group = kKeySum;
  if (tied_first) {
    LH_ASSERT(placed.sum_group == kNoSum, "a tied embedding with a sum of its own");
    placed.sum_group = kTiedSum;
    placed.counted = placed.counted && *tied_first;
  }
  return placed;
}

}  // namespace

Placement Placement::even(int ranks_per_node) {
  Placement placement;
  placement.ranks_per_node_ = ranks_per_node;
  return placement;
}

Placement Placement::listed(std::vector<int> nodes) {
  Placement placement;
  placement.nodes_ = std::move(nodes);
  return placement;
}

int Placement::node_of(int rank) const {
  if (!nodes_.empty()) return nodes_.at(static_cast<size_t>(rank));
  return ranks_per_node_ == 0 ? 0 : rank / ranks_per_node_;
}

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
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const UnitDescription& described : model.stage(stage(rank, chunk))) {
      for (const ParameterDescription& p : described.parameters) {
        format::ParameterShard shard =
            format::plan_parameter(tensor, {p.whole(), p.split}, index.tp);
        std::optional<bool> tied_first;
        if (tied && p.name == model.tied->embedding) tied_first = index.pp == 0;
        placed.push_back(place_parameter(std::move(shard), unit, frozen && frozen(p.name),
                                         tied_first));
        placed.back().expert = p.expert.has_value();
        placed.back().joint = p.joint;
        // A rank has no rows of an expert that another rank of its ep group has.
        if (p.expert && p.expert->index * ep / p.expert->of != experts.index) {
          placed.back().slice.extent[0] = 0;
        }
      }
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
  const int stage = mesh_index_of(shape, rank).pp;
  units.slots = gather_slots(training_plan(), stage, units, gathered_budget);
  return units;
}

std::string LayoutDescription::describe() const {
  const std::string mesh = fmt::format("pp {} x dp {} x cp {} x tp {}", shape.pp,
                                       shape.dp, shape.cp, shape.tp);
  return fmt::format("{}{}, zero {}", mesh, ep > 1 ? fmt::format(", ep {}", ep) : "",
                     zero);
}

LayoutDescription describe_layout(const RunConfig& config, const ModelDescription& model,
                                  int64_t ranks, const Placement& placement) {
  const ParallelSection& p = config.parallel;
  LayoutDescription layout;
  layout.batch = derive_batch(config, ranks);
  layout.shape = {checked_degree(p.pp, "pp"), checked_degree(layout.batch.dp, "dp"),
                  checked_degree(p.cp, "cp"), checked_degree(p.tp, "tp")};
  check_mesh(layout.shape, checked_degree(ranks, "dp"));
  layout.zero = static_cast<int>(p.zero);
  layout.shards = shard_group_size(config, layout.shape, placement);
  layout.ep = expert_group_size(config, layout);
  layout.chunks = checked_degree(p.virtual_stages, "virtual_stages");
  if (p.pp > 1) layout.pipeline = p.pipeline;
  layout.stages = place_layers(config, model);
  layout.tied = model.tied && p.pp > 1;
  layout.tensor =
      format::make_shard_plan(model.query_heads, model.key_heads, p.tp, p.sequence);
  if (p.cp > 1) layout.context.emplace(config.data.seq_len, layout.shape.cp);
  // A split that leaves a rank nothing fails on every rank alike: rank 0 is checked.
  for (const ParameterDescription& parameter : model.parameters()) {
    format::plan_parameter(layout.tensor, {parameter.whole(), parameter.split}, 0);
  }
  check_pipeline_plan(layout.pipeline, layout.shape.pp, layout.chunks,
                      layout.batch.accumulation);
  layout.weight_bytes = config.precision.compute == ComputeType::Fp32 ? 4 : 2;
  if (config.parallel.zero == 3 && layout.shards > 1) {
    layout.gathered_budget = checked_budget(config, layout, model);
  }
  return layout;
}

namespace {

int64_t bytes_of(StateType type) { return type == StateType::Fp32 ? 4 : 2; }

}  // namespace

StateBytes state_bytes(const std::vector<BucketPlan>& buckets,
                       const PrecisionSection& precision) {
  const int64_t compute = precision.compute == ComputeType::Fp32 ? 4 : 2;
  StateBytes total;
  for (const BucketPlan& bucket : buckets) {
    const int64_t owned = bucket.owned.size();
    total.weights += compute * (bucket.weights_stay ? bucket.num_elements : owned);
    const bool shared =
        precision.compute == ComputeType::Fp32 || precision.master == MasterType::Bf16Sr;
    if (!shared) total.masters += 4 * owned;
    if (bucket.frozen) continue;
    total.gradients +=
        bytes_of(precision.gradients) * (bucket.grads_stay ? bucket.num_elements : owned);
    total.moments += 2 * bytes_of(precision.moments) * owned;
  }
  return total;
}

int64_t checkpoint_bytes(const ModelDescription& model, const PrecisionSection& precision,
                         const std::function<bool(const std::string&)>& frozen) {
  const int64_t master = precision.master == MasterType::Bf16Sr ? 2 : 4;
  int64_t bytes = 0;
  for (const ParameterDescription& p : model.parameters()) {
    const bool trained = !frozen || !frozen(p.name);
    bytes +=
        p.num_elements() * (master + (trained ? 2 * bytes_of(precision.moments) : 0));
  }
  return bytes;
}

}  // namespace longhaul::layout
