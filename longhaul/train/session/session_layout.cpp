#include "longhaul/train/session/session_layout.h"

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

namespace longhaul::train {
namespace {

/// Returns a copy of `values` on the host, or `values` themselves where they lie there.
/// Meanwhile the groups are watched, as Layout::read_on_host says.
at::Tensor read_watched(const at::Tensor& values,
                        const std::vector<std::shared_ptr<comm::Communicator>>& groups) {
  if (values.is_cpu()) return values;
  at::Tensor host =
      at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  host.copy_(values, /*non_blocking=*/true);
  device::wait(device::mark(values.device()), [&] {
    for (const auto& group : groups) group->progress();
  });
  return host;
}

/// Returns this rank's group of a kind, cut from the group `whole`, or `whole` itself
/// where the group is all of it. Collective over `whole`.
comm::Communicator* cut(Layout& layout, comm::Communicator& whole,
                        layout::GroupKind kind) {
  const layout::GroupPlace place =
      layout.rank_groups().place(kind, layout.mesh->world().rank());
  // All ranks of `whole` take the same branch. The exceptions are groups that only the
  // ends of a pipeline have: there every rank has to take part in the split.
  if (kind != layout::GroupKind::Tied && kind != layout::GroupKind::KeyReplicas) {
    if (place.size == whole.size()) return &whole;
    if (place.size == 1) return layout.keep(comm::self_world(layout::group_name(kind)));
  }
  return layout.keep(whole.split(place.color, place.index, layout::group_name(kind)));
}

void cut_data_group(Layout& layout) {
  comm::Communicator& data = layout.mesh->data();
  layout.groups.shard = layout.for_tensors(*cut(layout, data, layout::GroupKind::Shard));
  layout.groups.replicas =
      layout.for_tensors(*cut(layout, data, layout::GroupKind::Replicas));
  if (layout.ep == 1) return;
  layout.groups.expert_shard =
      layout.for_tensors(*cut(layout, data, layout::GroupKind::ExpertShard));
  layout.groups.expert_replicas =
      layout.for_tensors(*cut(layout, data, layout::GroupKind::ExpertReplicas));
}

/// Joins the first and the last stage, which hold a tied embedding together.
void join_tied_stages(Layout& layout) {
  if (!layout.tied) return;
  comm::Communicator* tied = cut(layout, layout.mesh->pp(), layout::GroupKind::Tied);
  layout.groups.sums.at(layout::kTiedSum - 1) = layout.for_tensors(*tied);
}

/// Spreads experts. The groups that are watched while the host waits for their counts are
/// all that were made before.
void spread_experts(Layout& layout) {
  if (layout.ep == 1) return;
  comm::Communicator* ep =
      layout.for_tensors(*cut(layout, layout.mesh->data(), layout::GroupKind::Ep));
  layout.experts = std::make_unique<parallel::TokenDispatch>(
      *ep, [groups = layout.owned](const at::Tensor& counts) {
        return read_watched(counts, groups);
      });
}

void split_features(Layout& layout) {
  const int64_t tp = layout.tensor.tp;
  if (tp == 1) return;
  comm::Communicator* group = layout.for_tensors(layout.mesh->tp());
  layout.region =
      std::make_unique<parallel::TensorRegion>(*group, layout.tensor.sequence);
  layout.groups.sums.at(layout::kTensorSum - 1) = group;
  layout.groups.sums.at(layout::kTensorFirst - 1) = group;
  if (tp <= layout.tensor.key_heads) return;
  comm::Communicator* holders =
      cut(layout, layout.mesh->tp(), layout::GroupKind::KeyReplicas);
  layout.groups.sums.at(layout::kKeySum - 1) = layout.for_tensors(*holders);
}

}  // namespace

comm::Communicator* Layout::keep(std::shared_ptr<comm::Communicator> group) {
  owned.push_back(std::move(group));
  return owned.back().get();
}

comm::Communicator* Layout::for_tensors(comm::Communicator& group) {
  if (device.is_cpu() || group.size() == 1) return &group;
  return keep(device::group_for(device, group));
}

std::vector<std::vector<double>> Layout::read_on_host(
    const std::vector<at::Tensor>& tensors) const {
  const at::Tensor all = read_watched(at::cat(tensors), owned);
  LH_ASSERT(all.scalar_type() == at::kDouble, "values in {}",
            c10::toString(all.scalar_type()));
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
        &batch.real, &batch.segments, &batch.index}) {
    *values = context.take(*values, rank);  // an empty vector stays empty
  }
  batch.seq_len = context.local_len();
}

void Layout::take_own_positions(std::vector<data::TokenBatch>& batches) const {
  if (!context) return;
  for (data::TokenBatch& micro_batch : batches) {
    take_positions(*context, mesh->index().cp, micro_batch);
  }
}

ActivationPlace Layout::activation_place(const RunConfig& config) const {
  const layout::MeshIndex& index = mesh->index();
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

Layout make_layout(layout::LayoutDescription description, const RunConfig& config,
                   at::Device device, std::shared_ptr<comm::Communicator> world) {
  Layout layout;
  static_cast<layout::LayoutDescription&>(layout) = std::move(description);
  layout.device = device;
  layout.mesh = std::make_unique<comm::Mesh>(std::move(world), layout.shape);
  cut_data_group(layout);
  layout.groups.sums.resize(layout::kSumGroups);
  join_tied_stages(layout);
  split_features(layout);
  if (layout.context) {
    comm::Communicator* cp = layout.for_tensors(layout.mesh->cp());
    layout.attention = parallel::make_attention_core(config.parallel.context, *cp);
    layout.sum_positions = [cp](at::Tensor& sums) {
      cp->all_reduce_order(tensor::buffer_of(sums), comm::ReduceOp::Sum);
    };
  }
  layout.boundaries = layout.for_tensors(layout.mesh->pp());
  spread_experts(layout);
  comm::Communicator& all = layout.mesh->world();
  const bool adds = config.optimizer.kind == OptimizerKind::Lamb;
  layout.everyone = adds ? layout.for_tensors(all) : &all;
  return layout;
}

}  // namespace longhaul::train
