#include "longhaul/comm/mesh.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::comm {
namespace {

/// Returns the world ranks of a group, in the group's order.
std::vector<int64_t> members(Communicator& group, int world_rank) {
  const int64_t mine = world_rank;
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group
      .all_gather({&mine, 1, format::DType::I64},
                  {all.data(), group.size(), format::DType::I64})
      ->wait();
  return all;
}

/// Returns the world ranks whose place in the mesh is the `same` as that of `rank`.
template <typename Same>
std::vector<int64_t> expected(const layout::MeshShape& shape, int rank,
                              const Same& same) {
  std::vector<int64_t> ranks;
  for (int r = 0; r < shape.world(); ++r) {
    if (same(layout::mesh_index_of(shape, r), layout::mesh_index_of(shape, rank)))
      ranks.push_back(r);
  }
  return ranks;
}

TEST(MeshIndex, TpRunsFastestAndPpSlowest) {
  const layout::MeshShape shape{.pp = 2, .dp = 3, .cp = 2, .tp = 4};
  for (int rank = 0; rank < 48; ++rank) {
    const layout::MeshIndex i = layout::mesh_index_of(shape, rank);
    EXPECT_EQ(((i.pp * 3 + i.dp) * 2 + i.cp) * 4 + i.tp, rank);
    EXPECT_TRUE(i.pp < 2 && i.dp < 3 && i.cp < 2 && i.tp < 4);
  }
  EXPECT_EQ(layout::mesh_index_of(shape, 1).tp, 1);
  EXPECT_EQ(layout::mesh_index_of(shape, 24).pp, 1);
  EXPECT_THROW(layout::mesh_index_of(shape, 48), Error);
}

TEST(Mesh, GroupsHoldTheRanksThatDifferAlongTheirAxisOnly) {
  using I = const layout::MeshIndex&;
  for (const layout::MeshShape shape :
       {layout::MeshShape{2, 1, 1, 2}, layout::MeshShape{1, 4, 1, 1},
        layout::MeshShape{2, 2, 2, 1}, layout::MeshShape{1, 2, 2, 2},
        layout::MeshShape{1, 3, 1, 2}, layout::MeshShape{1, 1, 1, 1}}) {
    run_fake_ranks(shape.world(), [&](const std::shared_ptr<Communicator>& world) {
      const Mesh mesh(world, shape);
      const int r = world->rank();
      EXPECT_EQ(members(mesh.pp(), r), expected(shape, r, [](I a, I b) {
                  return a.dp == b.dp && a.cp == b.cp && a.tp == b.tp;
                }));
      EXPECT_EQ(members(mesh.dp(), r), expected(shape, r, [](I a, I b) {
                  return a.pp == b.pp && a.cp == b.cp && a.tp == b.tp;
                }));
      EXPECT_EQ(members(mesh.cp(), r), expected(shape, r, [](I a, I b) {
                  return a.pp == b.pp && a.dp == b.dp && a.tp == b.tp;
                }));
      EXPECT_EQ(members(mesh.tp(), r), expected(shape, r, [](I a, I b) {
                  return a.pp == b.pp && a.dp == b.dp && a.cp == b.cp;
                }));
      EXPECT_EQ(members(mesh.data(), r), expected(shape, r, [](I a, I b) {
                  return a.pp == b.pp && a.tp == b.tp;
                }));
      EXPECT_EQ(mesh.tp().rank(), mesh.index().tp);
      EXPECT_EQ(mesh.pp().rank(), mesh.index().pp);
    });
  }
}

TEST(Mesh, CoordinatesAreReadable) {
  run_fake_ranks(6, [](const std::shared_ptr<Communicator>& world) {
    const Mesh mesh(world, {.pp = 1, .dp = 3, .cp = 1, .tp = 2});
    if (world->rank() == 5) {
      EXPECT_EQ(mesh.coordinates(), "pp 0 dp 2 cp 0 tp 1");
    }
  });
}

TEST(Mesh, AProductThatIsNotTheWorldIsNoMesh) {
  for (const layout::MeshShape shape :
       {layout::MeshShape{.pp = 2, .tp = 4}, layout::MeshShape{.dp = 0}}) {
    EXPECT_THROW(Mesh(self_world(), shape), Error);
  }
}

}  // namespace
}  // namespace longhaul::comm
