#include "longhaul/layout/mesh_shape.h"

#include <fmt/format.h>

#include <cstdint>

#include "longhaul/base/error.h"

namespace longhaul {

void check_mesh(const MeshShape& shape, int world) {
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

int rank_at(const MeshShape& shape, const MeshIndex& index) {
  return ((index.pp * shape.dp + index.dp) * shape.cp + index.cp) * shape.tp + index.tp;
}

std::string to_string(const MeshIndex& index) {
  return fmt::format("pp {} dp {} cp {} tp {}", index.pp, index.dp, index.cp, index.tp);
}

}  // namespace longhaul
