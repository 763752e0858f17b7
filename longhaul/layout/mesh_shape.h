#pragma once

#include <string>

namespace longhaul {

/// Ranks along each axis; world = pp * dp * cp * tp, tp fastest.
struct MeshShape {
  int pp = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int world() const { return pp * dp * cp * tp; }
};

/// Where a rank stands along each axis ("index"; "rank" is the world's only).
struct MeshIndex {
  int pp = 0;
  int dp = 0;
  int cp = 0;
  int tp = 0;
  bool operator==(const MeshIndex&) const = default;
};

MeshIndex mesh_index_of(const MeshShape& shape, int rank);
/// The way back.
int rank_at(const MeshShape& shape, const MeshIndex& index);
/// "pp 1 dp 0 cp 0 tp 3": for errors and logs.
std::string to_string(const MeshIndex& index);
/// ConfigError with the numbers unless the axes make up the world.
void check_mesh(const MeshShape& shape, int world);

}  // namespace longhaul
