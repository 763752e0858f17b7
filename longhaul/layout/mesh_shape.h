#pragma once

#include <vector>

#include "longhaul/run/place.h"

namespace longhaul::layout {

/// Ranks along each axis. World ranks count along tp first, then cp, dp and pp.
struct MeshShape {
  int pp = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int world() const { return pp * dp * cp * tp; }
};

using run::Axes;
using run::other_axes;
using enum run::Axes;
/// A rank's place along each axis.
using MeshIndex = run::Place;

/// Returns the number of ranks along some axes together, the product of their lengths.
int length_along(const MeshShape& shape, Axes axes);
/// Returns a rank's place among the ranks along some axes together, tp fastest: 0 to
/// length_along(shape, axes) - 1.
int place_along(const MeshShape& shape, const MeshIndex& index, Axes axes);
/// Returns the index of the rank that has this place along these axes, and `index` along
/// the others: the inverse of place_along.
MeshIndex moved_along(const MeshShape& shape, const MeshIndex& index, Axes axes,
                      int place);

MeshIndex mesh_index_of(const MeshShape& shape, int rank);
/// Returns the world rank at an index: the inverse of mesh_index_of.
int rank_at(const MeshShape& shape, const MeshIndex& index);
/// Tells which ranks share a machine.
class Placement {
 public:
  /// Places all ranks on one machine.
  Placement() = default;
  /// Places `ranks_per_node` neighbouring ranks on each machine.
  static Placement even(int ranks_per_node);
  /// Places each rank on the machine that `nodes` lists for the rank.
  static Placement listed(std::vector<int> nodes);

  int node_of(int rank) const;

 private:
  int ranks_per_node_ = 0;
  std::vector<int> nodes_;
};

}  // namespace longhaul::layout
