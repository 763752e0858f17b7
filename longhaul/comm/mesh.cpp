#include "longhaul/comm/mesh.h"

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

/// Returns the group of the ranks along the axes of a kind, in world order. A group of
/// one rank sends no messages. Collective.
std::shared_ptr<Communicator> along(run::GroupKind kind, Communicator& world,
                                    const layout::MeshShape& shape) {
  const run::Axes axes = run::axes_of(kind);
  const char* const name = run::group_name(kind);
  if (layout::length_along(shape, axes) == 1) return self_world(name);
  const layout::MeshIndex index = layout::mesh_index_of(shape, world.rank());
  return world.split(layout::place_along(shape, index, run::other_axes(axes)),
                     world.rank(), name);
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Communicator> world, layout::MeshShape shape)
    : shape_(shape), world_(std::move(world)) {
  LH_CHECK(shape.world() == world_->size(), "mesh",
           "pp {} x dp {} x cp {} x tp {} of {} ranks", shape.pp, shape.dp, shape.cp,
           shape.tp, world_->size());
  index_ = layout::mesh_index_of(shape, world_->rank());
  pp_ = along(run::GroupKind::Pp, *world_, shape);
  dp_ = along(run::GroupKind::Dp, *world_, shape);
  cp_ = along(run::GroupKind::Cp, *world_, shape);
  tp_ = along(run::GroupKind::Tp, *world_, shape);
  data_ = shape.cp == 1 ? dp_ : along(run::GroupKind::Data, *world_, shape);
  if (run::RankRecord* record = world_->ledger().record()) record->set_place(index_);
}

}  // namespace longhaul::comm
