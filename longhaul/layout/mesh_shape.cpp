#include "longhaul/layout/mesh_shape.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <ranges>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

struct Axis {
  Axes bit;
  int MeshShape::* length;
  int MeshIndex::* index;
};
/// From the slowest axis to the fastest.
constexpr std::array<Axis, 4> kAxes = {{{kPpAxis, &MeshShape::pp, &MeshIndex::pp},
                                        {kDpAxis, &MeshShape::dp, &MeshIndex::dp},
                                        {kCpAxis, &MeshShape::cp, &MeshIndex::cp},
                                        {kTpAxis, &MeshShape::tp, &MeshIndex::tp}}};

}  // namespace

void check_mesh(const MeshShape& shape, int world) {
  const auto text = fmt::format("pp {} x dp {} x cp {} x tp {}", shape.pp, shape.dp,
                                shape.cp, shape.tp);
  if (shape.pp < 1 || shape.dp < 1 || shape.cp < 1 || shape.tp < 1) {
    throw ConfigError("mesh",
                      fmt::format("{}: every axis must have at least one rank", text));
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

std::string to_string(const MeshIndex& index) {
  return fmt::format("pp {} dp {} cp {} tp {}", index.pp, index.dp, index.cp, index.tp);
}

}  // namespace longhaul::layout
