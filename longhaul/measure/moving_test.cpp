#include "longhaul/measure/moving.h"

#include <gtest/gtest.h>

#include "longhaul/comm/backend.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::measure {
namespace {

TEST(MovingProbes, ReadWriteAndLeaveNothingBehind) {
  const TestDirectory directory;
  {
    std::vector<Probe> probes = disk_probes(directory.path());
    ASSERT_EQ(probes.size(), 2U);
    probes[0].run();
    EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
    probes[1].run();
    EXPECT_EQ(probes[1].work, 256.0 * (1 << 20));
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(MovingProbes, TokenizeAndReadAStoreOfMadeUpText) {
  const TestDirectory scratch;
  std::vector<Probe> probes = data_probes(scratch.path());
  ASSERT_EQ(probes.size(), 2U);
  EXPECT_GE(probes[0].work, 4 << 20);
  EXPECT_EQ(probes[1].work, 32 * 1024);
  for (const Probe& probe : probes) probe.run();
}

TEST(MovingProbes, OfAGroupAreThereWhereThereIsOne) {
  const auto alone = comm::self_world();
  EXPECT_TRUE(group_probes(*alone).empty());
}

}  // namespace
}  // namespace longhaul::measure
