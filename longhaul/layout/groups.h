#pragma once

#include <vector>

#include "longhaul/layout/mesh_shape.h"
#include "longhaul/layout/shard_plan.h"

namespace longhaul::layout {

using run::group_name;
using run::GroupKind;

/// A rank's place in a group of one kind.
struct GroupPlace {
  /// Equal on the ranks of a group, different in the other groups cut from the same
  /// ranks.
  int color = 0;
  int index = 0;  ///< this rank's place in the group
  int size = 1;   ///< ranks of the group
};

/// Tells which ranks belong together: a pure function of few numbers, for one rank or for
/// a hundred thousand.
class Groups {
 public:
  /// Plans the groups of a mesh. `shards`, the ranks of a shard group, divides dp * cp.
  /// `tied` says that the first and the last of several stages hold one embedding.
  /// Several ranks of tp hold each of `shared_key_heads` key heads; 0: no key head is on
  /// several ranks. `ep` ranks have all experts together; `ep` divides dp * cp. `ep` must
  /// divide `shards`, or `shards` must divide `ep`.
  Groups(const MeshShape& shape, int shards, bool tied, int64_t shared_key_heads,
         int ep = 1);

  GroupPlace place(GroupKind kind, int rank) const;
  /// Returns the world ranks of the group that `rank` is in, in the order of their
  /// indices.
  std::vector<int> members(GroupKind kind, int rank) const;

 private:
  /// Returns the place in its group of a rank that has number `i` among the ranks along
  /// the kind's axes.
  GroupPlace cut(GroupKind kind, int i) const;

  MeshShape shape_;
  int shards_;
  bool tied_;
  int ep_;
  std::vector<KeyReplica> keys_;  ///< one for each tp index
};

}  // namespace longhaul::layout
