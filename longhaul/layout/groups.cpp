#include "longhaul/layout/groups.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul {

const char* group_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::Pp:
      return "pp";
    case GroupKind::Dp:
      return "dp";
    case GroupKind::Cp:
      return "cp";
    case GroupKind::Tp:
      return "tp";
    case GroupKind::Data:
      return "data";
    case GroupKind::Shard:
      return "shard";
    case GroupKind::Replicas:
      return "replicas";
    case GroupKind::Tied:
      return "tied";
    case GroupKind::KeyReplicas:
      return "key replicas";
    case GroupKind::Ep:
      return "ep";
    case GroupKind::ExpertData:
      return "expert data";
    case GroupKind::ExpertShard:
      return "expert shard";
    case GroupKind::ExpertReplicas:
      return "expert replicas";
  }
  return "?";
}

Groups::Groups(const MeshShape& shape, int shards, bool tied, const ShardPlan& tensor,
               int ep)
    : shape_(shape), shards_(shards), tied_(tied), ep_(ep) {
  LH_ASSERT(shards >= 1 && shape.dp * shape.cp % shards == 0 && tensor.tp == shape.tp,
            "shard groups of {} in dp {} x cp {}, a plan for tp {} of {}", shards,
            shape.dp, shape.cp, tensor.tp, shape.tp);
  LH_ASSERT(
      ep >= 1 && shape.dp * shape.cp % ep == 0 && (shards % ep == 0 || ep % shards == 0),
      "experts over {} ranks in dp {} x cp {} with shard groups of {}", ep, shape.dp,
      shape.cp, shards);
  for (int i = 0; i < shape.tp; ++i) keys_.push_back(key_replica(tensor, i));
}

int Groups::parent_size(GroupKind kind) const {
  switch (kind) {
    case GroupKind::Pp:
    case GroupKind::Tied:
      return shape_.pp;
    case GroupKind::Dp:
      return shape_.dp;
    case GroupKind::Cp:
      return shape_.cp;
    case GroupKind::Tp:
    case GroupKind::KeyReplicas:
      return shape_.tp;
    default:
      return shape_.dp * shape_.cp;
  }
}

int Groups::parent_index(GroupKind kind, const MeshIndex& index) const {
  switch (kind) {
    case GroupKind::Pp:
    case GroupKind::Tied:
      return index.pp;
    case GroupKind::Dp:
      return index.dp;
    case GroupKind::Cp:
      return index.cp;
    case GroupKind::Tp:
    case GroupKind::KeyReplicas:
      return index.tp;
    default:
      return index.dp * shape_.cp + index.cp;
  }
}

int Groups::parent_member(GroupKind kind, const MeshIndex& index, int i) const {
  MeshIndex other = index;
  switch (kind) {
    case GroupKind::Pp:
    case GroupKind::Tied:
      other.pp = i;
      break;
    case GroupKind::Dp:
      other.dp = i;
      break;
    case GroupKind::Cp:
      other.cp = i;
      break;
    case GroupKind::Tp:
    case GroupKind::KeyReplicas:
      other.tp = i;
      break;
    default:
      other.dp = i / shape_.cp;
      other.cp = i % shape_.cp;
  }
  return rank_at(shape_, other);
}

GroupPlace Groups::cut(GroupKind kind, int i) const {
  const int size = parent_size(kind);
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
      const int among = i / ep_;  // those with the same experts
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
  GroupPlace place = cut(kind, parent_index(kind, index));
  // Of an axis: its place along the others.
  switch (kind) {
    case GroupKind::Pp:
      place.color = (index.dp * shape_.cp + index.cp) * shape_.tp + index.tp;
      break;
    case GroupKind::Dp:
      place.color = (index.pp * shape_.cp + index.cp) * shape_.tp + index.tp;
      break;
    case GroupKind::Cp:
      place.color = (index.pp * shape_.dp + index.dp) * shape_.tp + index.tp;
      break;
    case GroupKind::Tp:
      place.color = (index.pp * shape_.dp + index.dp) * shape_.cp + index.cp;
      break;
    case GroupKind::Data:
      place.color = index.pp * shape_.tp + index.tp;
      break;
    default:
      break;
  }
  return place;
}

std::vector<int> Groups::members(GroupKind kind, int rank) const {
  const MeshIndex index = mesh_index_of(shape_, rank);
  const GroupPlace mine = cut(kind, parent_index(kind, index));
  std::vector<int> found(static_cast<size_t>(mine.size));
  for (int i = 0; i < parent_size(kind); ++i) {
    const GroupPlace other = cut(kind, i);
    if (other.color != mine.color) continue;
    found.at(static_cast<size_t>(other.index)) = parent_member(kind, index, i);
  }
  return found;
}

}  // namespace longhaul
