#include "longhaul/comm/mesh.h"

#include <utility>

#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

/// Returns the group of the ranks along some axes, in world order. A group of one rank
/// sends no messages. Collective.
std::shared_ptr<Communicator> along(Axes axes, Communicator& world,
                                    const MeshShape& shape, const char* name) {
  if (length_along(shape, axes) == 1) return self_world(name);
  const MeshIndex index = mesh_index_of(shape, world.rank());
  return world.split(place_along(shape, index, other_axes(axes)), world.rank(), name);
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Communicator> world, MeshShape shape)
    : shape_(shape), world_(std::move(world)) {
  check_mesh(shape, world_->size());
  index_ = mesh_index_of(shape, world_->rank());
  pp_ = along(kPpAxis, *world_, shape, "pp");
  dp_ = along(kDpAxis, *world_, shape, "dp");
  cp_ = along(kCpAxis, *world_, shape, "cp");
  tp_ = along(kTpAxis, *world_, shape, "tp");
  data_ = shape.cp == 1 ? dp_ : along(kDataAxes, *world_, shape, "data");
  if (RankRecord* record = world_->ledger().record()) {
    record->set_coordinates(coordinates());
  }
}

}  // namespace longhaul::comm
