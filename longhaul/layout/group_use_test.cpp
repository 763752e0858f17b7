#include "longhaul/layout/group_use.h"

#include <gtest/gtest.h>

namespace longhaul::layout {
namespace {

LayoutDescription on(const MeshShape& shape, int shards, int ep = 1) {
  LayoutDescription layout;
  layout.shape = shape;
  layout.shards = shards;
  layout.ep = ep;
  return layout;
}

TEST(GroupUse, NcclTakesMemoryForEachGroupByWhatItIsUsedFor) {
  RunConfig config;
  const auto reckoned = [&](const LayoutDescription& layout, int rank = 0) {
    return reckoned_nccl_bytes(layout, config, rank);
  };
  EXPECT_EQ(reckoned(on({1, 1, 1, 1}, 1)), 0);
  // Collectives of tp, of the shards and of their replicas; pp has one neighbour here.
  EXPECT_EQ(reckoned(on({2, 8, 1, 2}, 4)), 3 * kCollectivesBytes + kTransfersBytes);
  // A rank of a longer pipeline has two neighbours, and of a ring.
  EXPECT_EQ(reckoned(on({4, 1, 1, 1}, 1)), 2 * kTransfersBytes);
  config.parallel.context = ContextKind::Ring;
  EXPECT_EQ(reckoned(on({1, 1, 4, 1}, 1)), kCollectivesBytes + 2 * kTransfersBytes);
  config.parallel.context = ContextKind::Gather;
  EXPECT_EQ(reckoned(on({1, 1, 4, 1}, 1)), 2 * kCollectivesBytes);
  // Data and ep, which has both, and whose ranks send to all others.
  EXPECT_EQ(reckoned(on({1, 8, 1, 1}, 1, 8)),
            2 * kCollectivesBytes + 7 * kTransfersBytes);
  config.optimizer.kind = OptimizerKind::Lamb;
  EXPECT_EQ(reckoned(on({1, 2, 1, 1}, 1)), 2 * kCollectivesBytes);
}

}  // namespace
}  // namespace longhaul::layout
