#pragma once

#include <vector>

#include "longhaul/format/shard_plan.h"
#include "longhaul/layout/mesh_shape.h"

namespace longhaul {

/// The groups that tensors travel in.
enum class GroupKind {
  Pp,
  Dp,
  Cp,
  Tp,
  Data,            ///< dp x cp: ranks that see different data of the same weights
  Shard,           ///< of Data, those that share one copy of the state (ZeRO)
  Replicas,        ///< of Data, the same shard in each shard group
  Tied,            ///< of Pp, the first and the last stage where an embedding is on both
  KeyReplicas,     ///< of Tp, those that hold the same key heads
  Ep,              ///< of Data, side by side: they have all experts together
  ExpertData,      ///< of Data, those that have the same experts
  ExpertShard,     ///< of ExpertData, those that share one copy of the experts' state
  ExpertReplicas,  ///< of ExpertData, the same shard in each of these groups
};
const char* group_name(GroupKind kind);

/// A rank's place in a group of one kind.
struct GroupPlace {
  int color =
      0;  ///< equal on the ranks of a group, different on those that it is cut from
  int index = 0;  ///< among them
  int size = 1;
};

/// Which ranks belong together: a pure function of few numbers, for one rank or for a
/// hundred thousand.
class Groups {
 public:
  /// `shards`: ranks of a shard group; divides dp * cp. `tied`: an embedding is on the
  /// first and the last of several stages. `ep`: ranks that have all experts together;
  /// divides dp * cp, and of it and `shards` one the other.
  Groups(const MeshShape& shape, int shards, bool tied, const ShardPlan& tensor,
         int ep = 1);

  GroupPlace place(GroupKind kind, int rank) const;
  /// World ranks of the group that `rank` is in, in the order of their indices.
  std::vector<int> members(GroupKind kind, int rank) const;

 private:
  /// Of the group that this kind is cut from.
  int parent_size(GroupKind kind) const;
  int parent_index(GroupKind kind, const MeshIndex& index) const;
  int parent_member(GroupKind kind, const MeshIndex& index, int i) const;
  GroupPlace cut(GroupKind kind, int parent_index) const;

  MeshShape shape_;
  int shards_;
  bool tied_;
  int ep_;
  std::vector<KeyReplica> keys_;  ///< by tp index
};

}  // namespace longhaul
