#include "longhaul/layout/mesh_shape.h"

#include <fmt/format.h>

#include <array>
#include <ranges>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

struct Axis {
  Axes bit;
  int MeshShape::* length;
  int MeshIndex::* index;
};
/// The axes from the slowest to the fastest: neighbouring world ranks differ along tp.
constexpr std::array<Axis, 4> kAxes = {{{kPpAxis, &MeshShape::pp, &MeshIndex::pp},
                                        {kDpAxis, &MeshShape::dp, &MeshIndex::dp},
                                        {kCpAxis, &MeshShape::cp, &MeshIndex::cp},
                                        {kTpAxis, &MeshShape::tp, &MeshIndex::tp}}};

}  // namespace

Placement Placement::even(int ranks_per_node) {
  Placement placement;
  placement.ranks_per_node_ = ranks_per_node;
  return placement;
}

Placement Placement::listed(std::vector<int> nodes) {
  Placement placement;
  placement.nodes_ = std::move(nodes);
  return placement;
}

int Placement::node_of(int rank) const {
  if (!nodes_.empty()) return nodes_.at(static_cast<size_t>(rank));
  return ranks_per_node_ == 0 ? 0 : rank / ranks_per_node_;
}

int length_along(const MeshShape& shape, Axes axes) {
  int length = 1;
  for (const Axis& axis : kAxes) {
    if ((axes & axis.bit) != 0) length *= shape.*axis.length;
  }
  return length;
}

int place_along(const MeshShape& shape, const MeshIndex& index, Axes axes) {
  int place = 0;
  for (const Axis& axis : kAxes) {
    if ((axes & axis.bit) != 0) place = place * shape.*axis.length + index.*axis.index;
  }
  return place;
}

MeshIndex moved_along(const MeshShape& shape, const MeshIndex& index, Axes axes,
                      int place) {
  MeshIndex moved = index;
  for (const Axis& axis : std::views::reverse(kAxes)) {
    if ((axes & axis.bit) == 0) continue;
    moved.*axis.index = place % shape.*axis.length;
    place /= shape.*axis.length;
  }
  return moved;
}

MeshIndex mesh_index_of(const MeshShape& shape, int rank) {
  LH_CHECK(rank >= 0 && rank < shape.world(), "mesh",
           "rank {} is not in a mesh of {} ranks", rank, shape.world());
  return moved_along(shape, {}, kAllAxes, rank);
}

int rank_at(const MeshShape& shape, const MeshIndex& index) {
  return place_along(shape, index, kAllAxes);
}

}  // namespace longhaul::layout
