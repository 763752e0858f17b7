#include "longhaul/layout/rules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "longhaul/layout/layout_description.h"

namespace longhaul::layout {
namespace {

using Broken = std::vector<BrokenRule>;
using Rule = config::LayoutRule;

/// Inserts a value into an ascending list that lacks it.
template <typename T>
void insert_once(std::vector<T>& values, const T& value) {
  const auto place = std::ranges::lower_bound(values, value);
  if (place == values.end() || *place != value) values.insert(place, value);
}

void check_experts(const RunConfig& config, const ModelLimits& limits, Broken& broken) {
  const ParallelSection& p = config.parallel;
  if (limits.experts.empty()) {
    if (p.ep > 1) broken.push_back({Rule::NoExperts, p.ep, 1});
    return;
  }
  const auto uneven = std::ranges::find_if(
      limits.experts, [&](int64_t experts) { return experts % p.ep != 0; });
  if (uneven != limits.experts.end()) broken.push_back({Rule::Experts, *uneven, p.ep});
  const bool in_one_pass = p.pp == 1 && p.cp == 1 && p.ep == 1 &&
                           config.batch.global_size == config.batch.micro_size &&
                           config.memory.recompute != RecomputeKind::Full;
  if (config.experts.balance != BalanceKind::Pooled) return;
  if (!in_one_pass) broken.push_back({Rule::Pooled});
  const int64_t fewest = limits.experts.front(), most = limits.experts.back();
  if (fewest != most) broken.push_back({Rule::PooledExperts, fewest, most});
}

/// Adds a broken rule if the bytes that ranks hold, keep and send in a step may not
/// fit 64 bits. The bounds are far above any machine's memory and far below what the
/// counts can hold.
void check_bytes(const RunConfig& config, const ModelLimits& limits, Broken& broken) {
  constexpr double kMostBytes = 4e18;
  constexpr double kBytesOfParameter = 28;  // weight, gradients, master, moments
  const auto parameters = static_cast<double>(limits.parameters);
  if (parameters * kBytesOfParameter > kMostBytes) {
    broken.push_back({Rule::ModelBytes, limits.parameters});
    return;
  }
  // For one token all matrices together have about as many outputs as the number of
  // parameters divided by the number of features.
  const double outputs = parameters / static_cast<double>(limits.model->features());
  const auto sequences = static_cast<double>(config.batch.global_size);
  const double moved =
      16.0 * sequences * static_cast<double>(config.data.seq_len) * outputs;
  const double passes = sequences / static_cast<double>(config.batch.micro_size);
  if (std::max(moved, 8.0 * passes * parameters) <= kMostBytes) return;
  broken.push_back({Rule::StepBytes, config.batch.global_size});
}

/// Returns the ranks of a dp x cp group that each machine has, for all such groups, or
/// the rule that is broken.
std::variant<int, BrokenRule> ranks_of_machines(const MeshShape& shape,
                                                const Placement& placement) {
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
  if (least != most || apart) return BrokenRule{Rule::Machines, least, most};
  return most;
}

void check_shards(const RunConfig& config, const MeshShape& shape,
                  const Placement& placement, Broken& broken) {
  const auto group = shard_group_size(config, shape, placement);
  const int64_t ep = config.parallel.ep;
  if (const int* shards = std::get_if<int>(&group); shards == nullptr) {
    broken.push_back(std::get<BrokenRule>(group));
  } else if (ep % *shards != 0 && *shards % ep != 0) {
    broken.push_back({Rule::ExpertShards, ep, *shards});
  }
}

void check_stages(const ParallelSection& p, int64_t layers, Broken& broken) {
  const int64_t stages = p.pp * p.virtual_stages;
  if (layers < stages) {
    broken.push_back({Rule::Layers, layers, stages});
  } else if (!p.partition.empty() && std::ssize(p.partition) != stages) {
    broken.push_back({Rule::PartitionLength, std::ssize(p.partition), stages});
  } else if (!p.partition.empty()) {
    int64_t sum = 0;
    for (const int64_t count : p.partition) {
      if (count < 1 || count > layers) {
        broken.push_back({Rule::PartitionCount, count, layers});
        return;
      }
      sum += count;
    }
    if (sum != layers) broken.push_back({Rule::PartitionSum, sum, layers});
  }
}

void check_features(int64_t tp, const ModelLimits& limits, Broken& broken) {
  if (!limits.heads.empty() && tp > limits.heads.front().query) {
    broken.push_back({Rule::QueryHeads, tp, limits.heads.front().query});
  }
  const int64_t fewest = shared_key_heads(tp, limits);
  int64_t more = tp;
  for (const format::Heads& heads : limits.heads) {
    if (heads.key > fewest) more = std::min(more, heads.key);
  }
  if (fewest > 0 && more < tp) broken.push_back({Rule::KeyHeads, fewest, more});
  const ParameterDescription* narrow = limits.narrower_than(tp);
  if (narrow != nullptr) broken.push_back({Rule::Narrow, narrow->split_size(), tp});
}

void check_gathered(const RunConfig& config, const ModelLimits& limits, int64_t ranks,
                    const Placement& placement, Broken& broken) {
  if (config.memory.gathered_gb == 0.0 || config.parallel.zero != 3) return;
  LayoutDescription layout = place_layout(config, limits, ranks, placement);
  const int64_t budget = std::exchange(layout.gathered_budget, 0);
  for (int pp = 0; pp < layout.shape.pp && budget > 0; ++pp) {
    const int rank = rank_at(layout.shape, {.pp = pp});
    const auto buckets =
        plan_buckets(layout.parameters(*limits.model, rank), layout.sharding(rank));
    const RankUnits units =
        layout.rank_units(*limits.model, rank, {buckets.begin(), buckets.end()});
    const int64_t least = slot_bytes(units.slots);
    if (budget >= least) continue;
    broken.push_back({Rule::Gathered, budget, least, pp});
    return;
  }
}

}  // namespace

ModelLimits::ModelLimits(const ModelDescription& described)
    : model(&described),
      layers(described.num_blocks()),
      parameters(described.num_parameters()) {
  for (const UnitDescription& unit : described.units) {
    if (unit.forward.routes > 0) insert_once(experts, unit.forward.routes);
    for (const ParameterDescription& p : unit.parameters) {
      if (!p.split || p.split->unit == format::ShardUnit::None) continue;
      if (p.split->by_heads()) {
        insert_once(heads, p.split->heads);
      } else if (narrow.empty() || p.split_size() < narrow.back()->split_size()) {
        narrow.push_back(&p);
      }
    }
  }
}

const ParameterDescription* ModelLimits::narrower_than(int64_t tp) const {
  const auto found = std::ranges::find_if(
      narrow, [&](const auto* parameter) { return parameter->split_size() < tp; });
  return found == narrow.end() ? nullptr : *found;
}

std::vector<BrokenRule> broken_without_ranks(const RunConfig& config,
                                             const ModelLimits& limits) {
  Broken broken = config::broken_settings(config);
  const int64_t seq_len = config.data.seq_len, most = limits.model->max_positions;
  if (seq_len > most) broken.push_back({Rule::MaxPositions, seq_len, most});
  check_experts(config, limits, broken);
  check_bytes(config, limits, broken);
  return broken;
}

std::vector<BrokenRule> broken_on_ranks(const RunConfig& config,
                                        const ModelLimits& limits, int64_t ranks,
                                        const Placement& placement) {
  Broken broken = config::broken_by_ranks(config, ranks);
  const ParallelSection& p = config.parallel;
  if (ranks % (p.pp * p.cp * p.tp) != 0) return broken;
  const MeshShape shape = mesh_of(config, ranks);
  check_shards(config, shape, placement, broken);
  check_stages(p, limits.layers, broken);
  check_features(p.tp, limits, broken);
  const int64_t batches = config.batch.global_size / (config.batch.micro_size * shape.dp);
  if (p.pp > 1 && p.pipeline == PipelineKind::Interleaved && batches % p.pp != 0) {
    broken.push_back({Rule::InterleavedBatches, batches, p.pp});
  }
  if (broken.empty()) check_gathered(config, limits, ranks, placement, broken);
  return broken;
}

std::variant<int, BrokenRule> shard_group_size(const RunConfig& config,
                                               const MeshShape& shape,
                                               const Placement& placement) {
  const ShardGroup& group = config.parallel.shard_group;
  const int data = shape.dp * shape.cp;
  if (config.parallel.zero == 0) return 1;
  if (group.kind == ShardGroup::Kind::World) return data;
  if (group.kind == ShardGroup::Kind::Node) return ranks_of_machines(shape, placement);
  if (group.ranks < 1 || data % group.ranks != 0) {
    return BrokenRule{Rule::ShardGroup, data, group.ranks};
  }
  return static_cast<int>(group.ranks);
}

int64_t shared_key_heads(int64_t tp, const ModelLimits& limits) {
  int64_t fewest = tp;
  for (const format::Heads& heads : limits.heads) fewest = std::min(fewest, heads.key);
  return fewest < tp ? fewest : 0;
}

void check_against_model(const RunConfig& config, const ModelConfig& model) {
  if (config.parallel.undecided()) return;
  const ModelLimits limits(model.description);
  const Broken broken = broken_without_ranks(config, limits);
  if (broken.empty()) return;
  refusal_of(broken.front(), config, limits, model.source_path).fail(config);
}

}  // namespace longhaul::layout
