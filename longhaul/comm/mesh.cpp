#include "longhaul/comm/mesh.h"

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

/// Returns the group of the ranks along some axes, in world order. A group of one rank
/// sends no messages. Collective.
std::shared_ptr<Communicator> along(layout::Axes axes, Communicator& world,
                                    const layout::MeshShape& shape, const char* name) {
  if (layout::length_along(shape, axes) == 1) return self_world(name);
  const layout::MeshIndex index = layout::mesh_index_of(shape, world.rank());
  return world.split(layout::place_along(shape, index, layout::other_axes(axes)),
                     world.rank(), name);
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Communicator> world, layout::MeshShape shape)
    : shape_(shape), world_(std::move(world)) {
  LH_CHECK(shape.world() == world_->size(), "mesh",
           "pp {} x dp {} x cp {} x tp {} of {} ranks", shape.pp, shape.dp, shape.cp,
           shape.tp, world_->size());
  index_ = layout::mesh_index_of(shape, world_->rank());
  pp_ = along(layout::kPpAxis, *world_, shape, "pp");
  dp_ = along(layout::kDpAxis, *world_, shape, "dp");
  cp_ = along(layout::kCpAxis, *world_, shape, "cp");
  tp_ = along(layout::kTpAxis, *world_, shape, "tp");
  data_ = shape.cp == 1 ? dp_ : along(layout::kDataAxes, *world_, shape, "data");
  if (run::RankRecord* record = world_->ledger().record()) {
    record->set_coordinates(coordinates());
  }
}

}  // namespace longhaul::comm
