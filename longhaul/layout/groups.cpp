#include "longhaul/layout/groups.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::layout {

namespace {

/// Returns true if a group of the kind has all ranks along its axes.
bool is_whole(GroupKind kind) {
  return kind == GroupKind::Pp || kind == GroupKind::Dp || kind == GroupKind::Cp ||
         kind == GroupKind::Tp || kind == GroupKind::Data;
}

}  // namespace

Groups::Groups(const MeshShape& shape, int shards, bool tied, int64_t shared_key_heads,
               int ep)
    : shape_(shape), shards_(shards), tied_(tied), ep_(ep) {
  LH_ASSERT(shards >= 1 && shape.dp * shape.cp % shards == 0,
            "shard groups of {} in dp {} x cp {}", shards, shape.dp, shape.cp);
  LH_ASSERT(
      ep >= 1 && shape.dp * shape.cp % ep == 0 && (shards % ep == 0 || ep % shards == 0),
      "experts over {} ranks in dp {} x cp {} with shard groups of {}", ep, shape.dp,
      shape.cp, shards);
  for (int i = 0; i < shape.tp; ++i) {
    keys_.push_back(shared_key_heads == 0 ? KeyReplica{i}
                                          : key_replica(shared_key_heads, {i, shape.tp}));
  }
}

GroupPlace Groups::cut(GroupKind kind, int i) const {
  const int size = length_along(shape_, run::axes_of(kind));
  switch (kind) {
    case GroupKind::Shard:
      return {i / shards_, i % shards_, shards_};
    case GroupKind::Replicas:
      return {i % shards_, i / shards_, size / shards_};
    case GroupKind::Tied: {
      const bool end = i == 0 || i + 1 == size;
      if (!tied_ || !end || size == 1) return {1 + i, 0, 1};
      return {0, i == 0 ? 0 : 1, 2};
    }
    case GroupKind::KeyReplicas: {
      const KeyReplica& key = keys_[static_cast<size_t>(i)];
      return {key.color, key.index, key.count};
    }
    case GroupKind::Ep:
      return {i / ep_, i % ep_, ep_};
    case GroupKind::ExpertData:
      return {i % ep_, i / ep_, size / ep_};
    case GroupKind::ExpertShard:
    case GroupKind::ExpertReplicas: {
      const int shards = std::max(1, shards_ / ep_);
      const int groups = size / ep_ / shards;
      const int among = i / ep_;  // place among the ranks with the same experts
      if (kind == GroupKind::ExpertShard) {
        return {i % ep_ * groups + among / shards, among % shards, shards};
      }
      return {i % ep_ * shards + among % shards, among / shards, groups};
    }
    default:
      return {0, i, size};
  }
}

GroupPlace Groups::place(GroupKind kind, int rank) const {
  const MeshIndex index = mesh_index_of(shape_, rank);
  const Axes axes = run::axes_of(kind);
  GroupPlace place = cut(kind, place_along(shape_, index, axes));
  if (is_whole(kind)) place.color = place_along(shape_, index, other_axes(axes));
  return place;
}

std::vector<int> Groups::members(GroupKind kind, int rank) const {
  const MeshIndex index = mesh_index_of(shape_, rank);
  const Axes axes = run::axes_of(kind);
  const GroupPlace mine = cut(kind, place_along(shape_, index, axes));
  std::vector<int> found(static_cast<size_t>(mine.size));
  for (int i = 0; i < length_along(shape_, axes); ++i) {
    const GroupPlace other = cut(kind, i);
    if (other.color != mine.color) continue;
    found.at(static_cast<size_t>(other.index)) =
        rank_at(shape_, moved_along(shape_, index, axes, i));
  }
  return found;
}

}  // namespace longhaul::layout
