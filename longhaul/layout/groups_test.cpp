#include "longhaul/layout/groups.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace longhaul::layout {
namespace {

constexpr GroupKind kAll[] = {GroupKind::Pp,
                              GroupKind::Dp,
                              GroupKind::Cp,
                              GroupKind::Tp,
                              GroupKind::Data,
                              GroupKind::Shard,
                              GroupKind::Replicas,
                              GroupKind::Tied,
                              GroupKind::KeyReplicas,
                              GroupKind::Ep,
                              GroupKind::ExpertData,
                              GroupKind::ExpertShard,
                              GroupKind::ExpertReplicas};

Groups groups_of(const MeshShape& shape, int shards, bool tied = false, int ep = 1) {
  return {shape, shards, tied, /*shared_key_heads=*/shape.tp > 2 ? 2 : 0, ep};
}

TEST(Groups, EveryRankIsInOneGroupOfEachKindAtItsPlace) {
  for (const auto& [shape, shards, ep] : {std::tuple{MeshShape{2, 3, 2, 4}, 3, 1},
                                          {MeshShape{2, 3, 2, 4}, 6, 2},
                                          {MeshShape{4, 4, 1, 1}, 2, 4},
                                          {MeshShape{1, 2, 4, 3}, 8, 2},
                                          {MeshShape{3, 1, 1, 6}, 1, 1},
                                          {MeshShape{1, 1, 1, 1}, 1, 1}}) {
    const Groups groups = groups_of(shape, shards, /*tied=*/true, ep);
    for (const GroupKind kind : kAll) {
      for (int rank = 0; rank < shape.world(); ++rank) {
        const std::vector<int> members = groups.members(kind, rank);
        const GroupPlace place = groups.place(kind, rank);
        ASSERT_EQ(static_cast<int>(members.size()), place.size) << group_name(kind);
        EXPECT_EQ(members.at(static_cast<size_t>(place.index)), rank) << group_name(kind);
        EXPECT_EQ(std::set<int>(members.begin(), members.end()).size(), members.size());
        for (const int other : members) {
          EXPECT_EQ(groups.members(kind, other), members) << group_name(kind);
          EXPECT_EQ(groups.place(kind, other).color, place.color) << group_name(kind);
        }
      }
    }
  }
}

/// Returns the ranks for which `same` returns true, in world order. `same` gets the mesh
/// indices of a rank and of `rank`.
template <typename Same>
std::vector<int> those(const MeshShape& shape, int rank, const Same& same) {
  std::vector<int> found;
  for (int r = 0; r < shape.world(); ++r) {
    if (same(mesh_index_of(shape, r), mesh_index_of(shape, rank))) found.push_back(r);
  }
  return found;
}

TEST(Groups, AxesHoldTheRanksThatDifferInThemAlone) {
  const MeshShape shape{2, 3, 2, 4};
  const Groups groups = groups_of(shape, 1);
  using I = const MeshIndex&;
  for (int r = 0; r < shape.world(); ++r) {
    EXPECT_EQ(groups.members(GroupKind::Pp, r), those(shape, r, [](I a, I b) {
                return a.dp == b.dp && a.cp == b.cp && a.tp == b.tp;
              }));
    EXPECT_EQ(groups.members(GroupKind::Cp, r), those(shape, r, [](I a, I b) {
                return a.pp == b.pp && a.dp == b.dp && a.tp == b.tp;
              }));
    EXPECT_EQ(groups.members(GroupKind::Data, r),
              those(shape, r, [](I a, I b) { return a.pp == b.pp && a.tp == b.tp; }));
  }
}

TEST(Groups, ExpertsAreSpreadOverNeighboursAndSharedByEveryEpthRank) {
  const MeshShape shape{1, 8, 1, 2};
  const Groups groups = groups_of(shape, /*shards=*/4, false, /*ep=*/2);
  EXPECT_EQ(groups.members(GroupKind::Ep, 7), (std::vector<int>{5, 7}));
  EXPECT_EQ(groups.members(GroupKind::ExpertData, 7), (std::vector<int>{3, 7, 11, 15}));
  // Two of the four ranks of a shard group have the same experts.
  EXPECT_EQ(groups.members(GroupKind::ExpertShard, 7), (std::vector<int>{3, 7}));
  EXPECT_EQ(groups.members(GroupKind::ExpertReplicas, 7), (std::vector<int>{7, 15}));
}

TEST(Groups, WithoutExpertParallelismExpertsAreSharedAsTheRest) {
  const MeshShape shape{2, 3, 2, 4};
  const Groups groups = groups_of(shape, 3);
  for (int r = 0; r < shape.world(); ++r) {
    EXPECT_EQ(groups.members(GroupKind::Ep, r), std::vector<int>{r});
    for (const auto& [expert, other] :
         {std::pair{GroupKind::ExpertData, GroupKind::Data},
          {GroupKind::ExpertShard, GroupKind::Shard},
          {GroupKind::ExpertReplicas, GroupKind::Replicas}}) {
      EXPECT_EQ(groups.members(expert, r), groups.members(other, r))
          << group_name(expert);
    }
  }
}

TEST(Groups, ShardsLieSideBySideAndReplicasAcross) {
  const MeshShape shape{1, 6, 1, 2};
  const Groups groups = groups_of(shape, 3);
  EXPECT_EQ(groups.members(GroupKind::Shard, 9), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(groups.members(GroupKind::Replicas, 9), (std::vector<int>{3, 9}));
}

TEST(Groups, ATiedEmbeddingIsOnTheFirstAndTheLastStage) {
  const MeshShape shape{4, 1, 1, 2};
  const Groups tied = groups_of(shape, 1, true);
  EXPECT_EQ(tied.members(GroupKind::Tied, 1), (std::vector<int>{1, 7}));
  EXPECT_EQ(tied.members(GroupKind::Tied, 7), (std::vector<int>{1, 7}));
  EXPECT_EQ(tied.members(GroupKind::Tied, 3), std::vector<int>{3});
  EXPECT_EQ(groups_of(shape, 1).members(GroupKind::Tied, 1), std::vector<int>{1});
}

TEST(Groups, RanksThatHoldAKeyHeadBelongTogether) {
  // Two key heads on five ranks: three hold the first, two the second.
  const MeshShape shape{1, 2, 1, 5};
  const Groups groups = groups_of(shape, 1);
  EXPECT_EQ(groups.members(GroupKind::KeyReplicas, 6), (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(groups.members(GroupKind::KeyReplicas, 9), (std::vector<int>{8, 9}));
}

}  // namespace
}  // namespace longhaul::layout
