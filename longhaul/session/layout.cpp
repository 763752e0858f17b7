#include "longhaul/session/layout.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/device/device.h"
#include "longhaul/parallel/context/attention_core.h"
#include "longhaul/parallel/expert/dispatch.h"
#include "longhaul/parallel/tensor/region.h"
#include "longhaul/tensor/buffer_of.h"

namespace longhaul::session {
namespace {

/// Returns a copy of `values` on the host, or `values` themselves where they are there
/// already. Calls `look` while it waits for the copy.
at::Tensor read_watched(const at::Tensor& values, const std::function<void()>& look) {
  if (values.is_cpu()) return values;
  at::Tensor host =
      at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  host.copy_(values, /*non_blocking=*/true);
  device::wait(device::mark(values.device()), look);
  return host;
}

}  // namespace

Layout::Layout(layout::LayoutDescription description, const RunConfig& config,
               at::Device device, std::shared_ptr<comm::Communicator> world)
    : description_(std::move(description)),
      context_(config.parallel.context),
      device_(device),
      mesh_(std::make_unique<comm::Mesh>(std::move(world), description_.shape)) {
  cut_data_group();
  groups_.sums.resize(layout::kSumGroups);
  join_tied_stages();
  split_features();
  split_positions();
  boundaries_ = for_tensors(mesh_->pp(), use_of(layout::GroupKind::Pp));
  spread_experts();
  comm::Communicator& all = mesh_->world();
  const bool adds = config.optimizer.kind == OptimizerKind::Lamb;
  everyone_ = adds ? for_tensors(all, {}) : &all;
  device::open_groups(owned_);
}

comm::Communicator* Layout::keep(std::shared_ptr<comm::Communicator> group) {
  owned_.push_back(std::move(group));
  return owned_.back().get();
}

comm::Communicator* Layout::for_tensors(comm::Communicator& group,
                                        const layout::GroupUse& use) {
  if (device_.is_cpu() || group.size() == 1) return &group;
  return keep(device::group_for(device_, group, use));
}

comm::Communicator* Layout::cut(comm::Communicator& whole, layout::GroupKind kind) {
  const layout::GroupPlace place =
      description_.rank_groups().place(kind, mesh_->world().rank());
  // All ranks of `whole` take the same branch. The exceptions are groups that only the
  // ends of a pipeline have: there every rank has to take part in the split.
  if (kind != layout::GroupKind::Tied && kind != layout::GroupKind::KeyReplicas) {
    if (place.size == whole.size()) return &whole;
    if (place.size == 1) return keep(comm::self_world(layout::group_name(kind)));
  }
  return keep(whole.split(place.color, place.index, layout::group_name(kind)));
}

void Layout::cut_data_group() {
  comm::Communicator& data = mesh_->data();
  const auto take = [&](layout::GroupKind kind) {
    return for_tensors(*cut(data, kind), use_of(kind));
  };
  groups_.shard = take(layout::GroupKind::Shard);
  groups_.replicas = take(layout::GroupKind::Replicas);
  if (description_.ep == 1) return;
  groups_.expert_shard = take(layout::GroupKind::ExpertShard);
  groups_.expert_replicas = take(layout::GroupKind::ExpertReplicas);
}

/// Joins the first and the last stage, which hold a tied embedding together.
void Layout::join_tied_stages() {
  if (!description_.tied) return;
  comm::Communicator* tied = cut(mesh_->pp(), layout::GroupKind::Tied);
  groups_.sums.at(layout::kTiedSum - 1) =
      for_tensors(*tied, use_of(layout::GroupKind::Tied));
}

void Layout::split_features() {
  const int64_t tp = description_.tensor.tp;
  if (tp == 1) return;
  comm::Communicator* group = for_tensors(mesh_->tp(), use_of(layout::GroupKind::Tp));
  region_ =
      std::make_unique<parallel::TensorRegion>(*group, description_.tensor.sequence);
  groups_.sums.at(layout::kTensorSum - 1) = group;
  groups_.sums.at(layout::kTensorFirst - 1) = group;
  if (description_.shared_key_heads == 0) return;
  comm::Communicator* holders = cut(mesh_->tp(), layout::GroupKind::KeyReplicas);
  groups_.sums.at(layout::kKeySum - 1) =
      for_tensors(*holders, use_of(layout::GroupKind::KeyReplicas));
}

void Layout::split_positions() {
  if (!description_.context) return;
  cp_ = for_tensors(mesh_->cp(), use_of(layout::GroupKind::Cp));
  attention_ = parallel::make_attention_core(context_, *cp_);
  sum_positions_ = [cp = cp_](at::Tensor& sums) {
    cp->all_reduce_order(tensor::buffer_of(sums), comm::ReduceOp::Sum);
  };
}

/// Spreads experts over the ranks of ep. While the host waits for the counts of tokens
/// that the ranks exchange, it watches all groups that were made before this call.
void Layout::spread_experts() {
  if (description_.ep == 1) return;
  ep_ = for_tensors(*cut(mesh_->data(), layout::GroupKind::Ep),
                    use_of(layout::GroupKind::Ep));
  experts_ = std::make_unique<parallel::TokenDispatch>(
      *ep_, [look = watch()](const c10::Event& counts) { device::wait(counts, look); });
}

comm::Communicator* Layout::tensor_group(layout::GroupKind kind) const {
  using layout::GroupKind;
  switch (kind) {
    case GroupKind::Pp:
      return boundaries_;
    case GroupKind::Dp:
    case GroupKind::Data: {
      const bool shards = groups_.shard->size() == mesh_->data().size();
      return shards ? groups_.shard : groups_.replicas;
    }
    case GroupKind::Cp:
      return cp_;
    case GroupKind::Tp:
      return groups_.sums.at(layout::kTensorSum - 1);
    case GroupKind::Shard:
      return groups_.shard;
    case GroupKind::Replicas:
      return groups_.replicas;
    case GroupKind::Tied:
      return groups_.sums.at(layout::kTiedSum - 1);
    case GroupKind::KeyReplicas:
      return groups_.sums.at(layout::kKeySum - 1);
    case GroupKind::Ep:
      return ep_;
    case GroupKind::ExpertData:
      return nullptr;
    case GroupKind::ExpertShard:
      return groups_.expert_shard;
    case GroupKind::ExpertReplicas:
      return groups_.expert_replicas;
  }
  LH_ASSERT(false, "a kind of group that is not known: {}", static_cast<int>(kind));
}

std::optional<uint64_t> Layout::bytes_of_groups() const {
  return device::bytes_of_groups(owned_);
}

void Layout::prepare(nn::ForwardContext& context) const {
  context.attention = attention_;
  context.region = region_.get();
  context.router.dispatch = experts_.get();
  if (!description_.context) return;
  context.pairs.sum_positions = sum_positions_;
  context.pairs.counts = mesh_->index().cp == 0;
  context.router.sequence_parts = description_.context->ranks();
  context.router.sum_sequences = sum_positions_;
}

std::function<void()> Layout::watch() const {
  return [groups = owned_] {
    for (const auto& group : groups) group->progress();
  };
}

at::Tensor Layout::to_host(const at::Tensor& values) const {
  return read_watched(values, watch());
}

std::vector<std::vector<double>> Layout::read_on_host(
    const std::vector<at::Tensor>& tensors) const {
  const at::Tensor all = to_host(at::cat(tensors)).to(at::kDouble);
  const double* from = all.const_data_ptr<double>();
  std::vector<std::vector<double>> values;
  for (const at::Tensor& part : tensors) {
    values.emplace_back(from, from + part.numel());
    from += part.numel();
  }
  return values;
}

void take_positions(const layout::ContextLayout& context, int rank,
                    data::TokenBatch& batch) {
  const size_t positions = batch.tokens.size();
  const bool has_first = context.chunks(rank).front().begin == 0;
  for (std::vector<int32_t>& targets : batch.targets) {
    if (targets.size() == positions) {
      targets = context.take(targets, rank);
    } else if (!has_first) {
      std::ranges::fill(targets, data::kIgnore);
    }
  }
  for (std::vector<int32_t>* values :
       {&batch.tokens, &batch.positions, &batch.document_start, &batch.document_end,
        &batch.real, &batch.segments, &batch.index, &batch.sides}) {
    *values = context.take(*values, rank);  // an empty vector stays empty
  }
  batch.seq_len = context.local_len();
}

void Layout::take_own_positions(std::vector<data::TokenBatch>& batches) const {
  if (!description_.context) return;
  for (data::TokenBatch& micro_batch : batches) {
    take_positions(*description_.context, mesh_->index().cp, micro_batch);
  }
}

ActivationPlace Layout::activation_place(const RunConfig& config) const {
  const layout::MeshIndex& index = mesh_->index();
  const layout::MeshShape& shape = description_.shape;
  ActivationPlace place;
  place.global_size = config.batch.global_size;
  place.micro_size = config.batch.micro_size;
  place.dp = shape.dp;
  place.dp_index = index.dp;
  place.seq_len = config.data.seq_len;
  place.chunks = {{0, 0, config.data.seq_len}};
  if (description_.context) place.chunks = description_.context->chunks(index.cp);
  if (description_.tensor.sequence) {
    place.token_parts = shape.tp;
    place.token_part = index.tp;
  } else {
    place.copy = index.tp > 0;
  }
  return place;
}

std::vector<int64_t> gather_numbers(comm::Communicator& group,
                                    std::vector<int64_t> mine) {
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(group.size()));
  group
      .all_gather({mine.data(), std::ssize(mine), format::DType::I64},
                  {all.data(), std::ssize(all), format::DType::I64})
      ->wait();
  return all;
}

layout::Placement placement_of(comm::Communicator& world, comm::Communicator& node) {
  // A machine is named by the first of its ranks.
  int64_t first = world.rank();
  node.broadcast({&first, 1, format::DType::I64}, 0)->wait();
  const std::vector<int64_t> all = gather_numbers(world, {first});
  return layout::Placement::listed({all.begin(), all.end()});
}

}  // namespace longhaul::session
