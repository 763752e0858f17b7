#include "longhaul/layout/group_use.h"

#include <algorithm>

namespace longhaul::layout {

GroupUse use_of(GroupKind kind, ContextKind context) {
  switch (kind) {
    case GroupKind::Pp:
      return {Uses::Transfers, true};
    case GroupKind::Cp:
      return {context == ContextKind::Ring ? Uses::Transfers : Uses::Collectives, true};
    case GroupKind::Ep:
      return {Uses::Both, false};
    case GroupKind::Tp:
    case GroupKind::Tied:
    case GroupKind::KeyReplicas:
      return {Uses::Collectives, false};
    default:
      return {Uses::Collectives, true};
  }
}

int64_t reckoned_nccl_bytes(const LayoutDescription& layout, const RunConfig& config,
                            int rank) {
  const Groups groups = layout.rank_groups();
  int64_t bytes = 0;
  const auto add = [&](Uses uses, int64_t ranks, int64_t peers) {
    if (ranks == 1) return;
    if (uses != Uses::Transfers) bytes += kCollectivesBytes;
    if (uses != Uses::Collectives) bytes += peers * kTransfersBytes;
  };
  for (const GroupKind kind :
       {GroupKind::Pp, GroupKind::Cp, GroupKind::Tp, GroupKind::Shard,
        GroupKind::Replicas, GroupKind::Tied, GroupKind::KeyReplicas, GroupKind::Ep,
        GroupKind::ExpertShard, GroupKind::ExpertReplicas}) {
    const bool of_experts = kind == GroupKind::Ep || kind == GroupKind::ExpertShard ||
                            kind == GroupKind::ExpertReplicas;
    if (of_experts && layout.ep == 1) continue;
    const int64_t ranks = groups.place(kind, rank).size;
    // A rank of a ring or of a pipeline has two neighbours.
    const int64_t peers =
        kind == GroupKind::Ep ? ranks - 1 : std::min<int64_t>(2, ranks - 1);
    add(use_of(kind, config.parallel.context).uses, ranks, peers);
  }
  if (config.optimizer.kind == OptimizerKind::Lamb) {
    add(Uses::Collectives, layout.shape.world(), 0);
  }
  return bytes;
}

}  // namespace longhaul::layout
