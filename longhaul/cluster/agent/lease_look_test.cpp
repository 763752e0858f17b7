#include "longhaul/cluster/agent/lease_look.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "longhaul/base/process.h"
#include "longhaul/system/owner_lock.h"
#include "tests/support/weights_files.h"

namespace longhaul::cluster {
namespace {

TEST(LeaseLook, ItTellsWhoHasTheLeaseAndThatItEndedInOrder) {
  const testing::TempDir dir;
  const fs::path lock = dir / "supervisor.lock";
  const auto none = look_at_lease(lock, 12.0, 10.0);
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->there);
  {
    const system::OwnerLock mine = system::OwnerLock::acquire(lock);
    const auto held = look_at_lease(lock, 12.0, 10.0);
    ASSERT_TRUE(held && held->there);
    EXPECT_TRUE(held->alive);
    EXPECT_FALSE(held->released);
    EXPECT_EQ(held->number, 1);
    EXPECT_EQ(held->process, ::getpid());
    EXPECT_EQ(held->host, host_name());
    EXPECT_NE(held->renewed, 0);
  }
  const auto ended = look_at_lease(lock, 12.0, 10.0);
  ASSERT_TRUE(ended && ended->there);
  EXPECT_TRUE(ended->released);
}

TEST(LeaseLook, StorageThatDoesNotAnswerInTimeOrGivesNonsenseIsNoAnswer) {
  const testing::TempDir dir;
  const fs::path lock = dir / "supervisor.lock";
  const system::OwnerLock mine = system::OwnerLock::acquire(lock);
  EXPECT_FALSE(look_at_lease(lock, 12.0, 0.0).has_value());
  testing::write_file(dir / "other.lock", "{\"torn");
  EXPECT_FALSE(look_at_lease(dir / "other.lock", 12.0, 10.0).has_value());
}

}  // namespace
}  // namespace longhaul::cluster
