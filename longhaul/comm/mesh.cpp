#include "longhaul/comm/mesh.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/ledger.h"

namespace longhaul::comm {
namespace {

void check_shape(const MeshShape& shape, int world) {
  const auto text = fmt::format("pp {} x dp {} x cp {} x tp {}", shape.pp, shape.dp,
                                shape.cp, shape.tp);
  if (shape.pp < 1 || shape.dp < 1 || shape.cp < 1 || shape.tp < 1) {
    throw ConfigError("mesh", fmt::format("{}: every axis has at least one rank", text));
  }
  // Axis by axis, so that no product overflows.
  int64_t product = 1;
  for (const int axis : {shape.pp, shape.dp, shape.cp, shape.tp}) {
    product = product > world ? product : product * axis;
  }
  if (product != world) {
    throw ConfigError(
        "mesh",
        fmt::format("{} {} {} ranks, but {} were started; start as "
                    "many ranks as the product, or change [parallel]",
                    text, product > world ? "needs at least" : "makes", product, world));
  }
}

/// The ranks that share `color`, in world order. An axis of one needs no messages.
std::shared_ptr<Communicator> axis(Communicator& world, int length, int color,
                                   const char* name) {
  if (length == 1) return self_world(name);
  return world.split(color, world.rank(), name);
}

}  // namespace

MeshIndex mesh_index_of(const MeshShape& shape, int rank) {
  LH_CHECK(rank >= 0 && rank < shape.world(), "mesh",
           "rank {} is not in a mesh of {} ranks", rank, shape.world());
  MeshIndex index;
  index.tp = rank % shape.tp;
  rank /= shape.tp;
  index.cp = rank % shape.cp;
  rank /= shape.cp;
  index.dp = rank % shape.dp;
  index.pp = rank / shape.dp;
  return index;
}

Mesh::Mesh(std::shared_ptr<Communicator> world, MeshShape shape)
    : shape_(shape), world_(std::move(world)) {
  check_shape(shape, world_->size());
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

std::string Mesh::coordinates() const {
  return fmt::format("pp {} dp {} cp {} tp {}", index_.pp, index_.dp, index_.cp,
                     index_.tp);
}

}  // namespace longhaul::comm
