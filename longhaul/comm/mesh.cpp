#include "longhaul/comm/mesh.h"

#include <utility>

#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

/// The ranks that share `color`, in world order. An axis of one needs no messages.
std::shared_ptr<Communicator> axis(Communicator& world, int length, int color,
                                   const char* name) {
  if (length == 1) return self_world(name);
  return world.split(color, world.rank(), name);
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Communicator> world, MeshShape shape)
    : shape_(shape), world_(std::move(world)) {
  check_mesh(shape, world_->size());
  index_ = mesh_index_of(shape, world_->rank());
  const MeshIndex& i = index_;
  // A group's colour counts its place along the other axes.
  pp_ = axis(*world_, shape.pp, (i.dp * shape.cp + i.cp) * shape.tp + i.tp, "pp");
  dp_ = axis(*world_, shape.dp, (i.pp * shape.cp + i.cp) * shape.tp + i.tp, "dp");
  cp_ = axis(*world_, shape.cp, (i.pp * shape.dp + i.dp) * shape.tp + i.tp, "cp");
  tp_ = axis(*world_, shape.tp, (i.pp * shape.dp + i.dp) * shape.cp + i.cp, "tp");
  if (shape.cp == 1) {
    data_ = dp_;
  } else {
    data_ = axis(*world_, shape.dp * shape.cp, i.pp * shape.tp + i.tp, "data");
  }
  if (RankRecord* record = world_->ledger().record()) {
    record->set_coordinates(coordinates());
  }
}

}  // namespace longhaul::comm
