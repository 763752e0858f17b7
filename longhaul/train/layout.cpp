#include "longhaul/train/layout.h"

#include <fmt/format.h>

#include <array>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/comm/nccl.h"
#include "longhaul/parallel/context/attention_core.h"
#include "longhaul/parallel/pipeline/partition.h"
#include "longhaul/parallel/tensor/region.h"

namespace longhaul::train {
namespace {

/// Ranks of `data` on each machine. ConfigError unless all have as many, side by side.
/// Collective.
int ranks_per_node(comm::Communicator& data) {
  const auto host = comm::split_by_host(data, "node");
  const int64_t mine = host->size();
  std::array<int64_t, 2> largest = {mine, -mine};
  data.all_reduce_wait({largest.data(), 2, DType::I64}, comm::ReduceOp::Max);
  const bool apart = data.any(host->rank() != data.rank() % host->size());
  if (largest[0] != -largest[1] || apart) {
    throw ConfigError(
        "parallel",
        fmt::format("parallel.shard_group = \"node\" needs the same number of data "
                    "parallel ranks on every machine, side by side; here there are {} to "
                    "{}; start them so (srun --distribution=block), or give a number",
                    -largest[1], largest[0]));
  }
  return static_cast<int>(mine);
}

/// Ranks of `data` that share one copy of the state. Collective.
int shard_group_size(const RunConfig& config, comm::Communicator& data) {
  if (config.parallel.zero == 0) return 1;
  const ShardGroup& group = config.parallel.shard_group;
  if (group.kind == ShardGroup::Kind::World) return data.size();
  if (group.kind == ShardGroup::Kind::Node) return ranks_per_node(data);
  const auto size = static_cast<int>(group.ranks);
  if (size < 1 || data.size() % size != 0) {
    throw ConfigError(
        "parallel",
        fmt::format("parallel.shard_group = {} does not divide the {} ranks of dp x cp; "
                    "choose one of their divisors, or \"world\"",
                    size, data.size()));
  }
  return size;
}

void cut_data_group(const RunConfig& config, Layout& layout) {
  comm::Communicator& data = layout.mesh->data();
  const int size = shard_group_size(config, data);
  const int groups = data.size() / size;
  comm::Communicator* shard = &data;
  comm::Communicator* replicas = &data;
  if (size == 1) {
    shard = layout.keep(comm::self_world("shard"));
  } else if (size < data.size()) {
    shard = layout.keep(data.split(data.rank() / size, data.rank(), "shard"));
  }
  if (groups == 1) {
    replicas = layout.keep(comm::self_world("replicas"));
  } else if (groups < data.size()) {
    replicas = layout.keep(data.split(data.rank() % size, data.rank(), "replicas"));
  }
  layout.groups.shard = layout.for_tensors(*shard);
  layout.groups.replicas = layout.for_tensors(*replicas);
  const bool several = size > 1;
  layout.sharding = {
      layout.groups.shard->rank(),          size,
      layout.groups.replicas->rank(),       groups,
      several && config.parallel.zero >= 2, several && config.parallel.zero >= 3};
}

/// Blocks are alike.
parallel::LayerCosts layer_costs(const ModelDescription& model, int64_t seq_len) {
  return {forward_cost(model.units.at(1), seq_len),
          forward_cost(model.units.front(), seq_len),
          forward_cost(model.units.back(), seq_len)};
}

void place_layers(const RunConfig& config, const ModelDescription& model,
                  Layout& layout) {
  const ParallelSection& p = config.parallel;
  const int64_t stages = p.pp * p.virtual_stages;
  layout.chunks = static_cast<int>(p.virtual_stages);
  if (p.pp > 1) layout.pipeline = p.pipeline;
  const auto cut =
      p.partition.empty()
          ? parallel::partition_layers(model.num_blocks(), stages,
                                       layer_costs(model, config.data.seq_len))
          : parallel::partition_layers(model.num_blocks(), stages, p.partition);
  for (const parallel::StageLayers& part : cut) {
    layout.stages.push_back({part.first_layer, part.end_layer, layout.stages.empty(),
                             layout.stages.size() + 1 == cut.size()});
  }
}

/// The first and the last stage hold a tied embedding together.
void join_tied_stages(const ModelDescription& model, Layout& layout) {
  layout.tied = model.tied && layout.mesh->shape().pp > 1;
  if (!layout.tied) return;
  comm::Communicator& pp = layout.mesh->pp();
  const bool end = pp.rank() == 0 || pp.rank() + 1 == pp.size();
  comm::Communicator* tied =
      layout.keep(pp.split(end ? 0 : 1 + pp.rank(), pp.rank(), "tied"));
  layout.groups.sums.at(kTiedSum - 1) = layout.for_tensors(*tied);
}

void split_features(const RunConfig& config, const ModelDescription& model,
                    Layout& layout) {
  const int tp = layout.mesh->shape().tp;
  layout.tensor =
      make_shard_plan(model.query_heads, model.key_heads, tp, config.parallel.sequence);
  if (tp == 1) return;
  comm::Communicator* group = layout.for_tensors(layout.mesh->tp());
  layout.region =
      std::make_unique<parallel::TensorRegion>(*group, layout.tensor.sequence);
  layout.groups.sums.at(kTensorSum - 1) = group;
  if (tp <= model.key_heads) return;
  const KeyReplica replica = key_replica(layout.tensor, layout.mesh->index().tp);
  comm::Communicator* replicas =
      layout.keep(layout.mesh->tp().split(replica.color, replica.index, "key replicas"));
  layout.groups.sums.at(kKeySum - 1) = layout.for_tensors(*replicas);
}

void split_positions(const RunConfig& config, Layout& layout) {
  const int cp = layout.mesh->shape().cp;
  if (cp == 1) return;
  layout.context = std::make_unique<parallel::ContextLayout>(config.data.seq_len, cp);
  layout.attention = parallel::make_attention_core(
      config.parallel.context, *layout.for_tensors(layout.mesh->cp()));
}

}  // namespace

comm::Communicator* Layout::keep(std::shared_ptr<comm::Communicator> group) {
  owned.push_back(std::move(group));
  return owned.back().get();
}

comm::Communicator* Layout::for_tensors(comm::Communicator& group) {
  if (device.is_cpu() || group.size() == 1) return &group;
  comm::NcclOptions options;
  options.limits.deadline_seconds = deadline_seconds;
  return keep(comm::nccl_group(group, device.index(), options));
}

void Layout::take_own_positions(std::vector<data::TokenBatch>& batches) const {
  if (!context) return;
  const int index = mesh->index().cp;
  for (data::TokenBatch& batch : batches) {
    for (auto* values :
         {&batch.tokens, &batch.targets, &batch.positions, &batch.document_start}) {
      *values = context->take(*values, index);
    }
    batch.seq_len = context->local_len();
  }
}

ActivationPlace Layout::activation_place(const RunConfig& config) const {
  const comm::MeshShape& shape = mesh->shape();
  const comm::MeshIndex& index = mesh->index();
  ActivationPlace place;
  place.global_size = config.batch.global_size;
  place.micro_size = config.batch.micro_size;
  place.dp = shape.dp;
  place.dp_index = index.dp;
  place.seq_len = config.data.seq_len;
  place.chunks = {{0, 0, config.data.seq_len}};
  if (context) place.chunks = context->chunks(index.cp);
  if (tensor.sequence) {
    place.token_parts = shape.tp;
    place.token_part = index.tp;
  } else {
    place.copy = index.tp > 0;
  }
  return place;
}

std::string Layout::describe() const {
  const comm::MeshShape& s = mesh->shape();
  return fmt::format("pp {} x dp {} x cp {} x tp {}, zero {}", s.pp, s.dp, s.cp, s.tp,
                     zero);
}

Layout make_layout(const RunConfig& config, const ModelDescription& model,
                   at::Device device, std::shared_ptr<comm::Communicator> world) {
  const DerivedBatch batch = derive_batch(config, world->size());
  const ParallelSection& p = config.parallel;
  Layout layout;
  layout.zero = static_cast<int>(p.zero);
  layout.device = device;
  layout.deadline_seconds = config.resilience.comm_timeout_s;
  layout.mesh = std::make_unique<comm::Mesh>(
      std::move(world),
      comm::MeshShape{static_cast<int>(p.pp), static_cast<int>(batch.dp),
                      static_cast<int>(p.cp), static_cast<int>(p.tp)});
  cut_data_group(config, layout);
  layout.groups.sums.resize(3);
  place_layers(config, model, layout);
  join_tied_stages(model, layout);
  split_features(config, model, layout);
  split_positions(config, layout);
  layout.boundaries = layout.for_tensors(layout.mesh->pp());
  return layout;
}

}  // namespace longhaul::train
