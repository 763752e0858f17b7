#include "longhaul/run/node_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "longhaul/base/clock.h"
#include "longhaul/run/rank_record.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

constexpr double kHour = 3600.0;

class NodeMemory : public ::testing::Test {
 protected:
  fs::path make(const std::string& name, bool with_state) const {
    const fs::path dir = memory_ / name;
    fs::create_directories(dir / "memory/run_1");
    if (with_state) write_file(dir / "memory/run_1/a1_s0_rank_00000.part", "state");
    return dir;
  }
  void remove_after(double seconds) const {
    remove_abandoned(memory_.path(), system_time() + seconds);
  }

  TestDirectory memory_;
};

TEST_F(NodeMemory, StatesAreKeptForADayAndEmptyDirectoriesForMoments) {
  const fs::path supervised = make(supervised_prefix() + "a", true);
  const fs::path alone = make(unsupervised_prefix() + "b", true);
  const fs::path empty = make(supervised_prefix() + "c", false);
  remove_after(60.0);
  EXPECT_TRUE(fs::exists(empty));
  remove_after(1.0 * kHour);
  EXPECT_FALSE(fs::exists(empty));
  remove_after(23.0 * kHour);
  EXPECT_TRUE(fs::exists(supervised) && fs::exists(alone));
  remove_after(25.0 * kHour);
  EXPECT_FALSE(fs::exists(supervised) || fs::exists(alone));
}

TEST_F(NodeMemory, WhatSomebodyHoldsStaysAndARenewedStateIsYoung) {
  const fs::path dir = make(supervised_prefix() + "a", true);
  {
    const DirectoryHold hold(dir);
    EXPECT_TRUE(hold.alone());
  }
  {
    const DirectoryHold hold(dir);
    remove_after(100.0 * kHour);
    EXPECT_TRUE(fs::exists(dir));
    const DirectoryHold other(dir);
    EXPECT_FALSE(other.alone());
  }
  const timespec old[2] = {{0, 1000}, {0, 1000}};
  for (const fs::path& path : {dir / "memory/run_1/a1_s0_rank_00000.part", dir / "memory",
                               dir / "memory/run_1", dir}) {
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  }
  DirectoryHold(dir / "memory/run_1").touch();
  remove_after(23.0 * kHour);
  EXPECT_TRUE(fs::exists(dir));
  remove_after(25.0 * kHour);
  EXPECT_FALSE(fs::exists(dir));
}

TEST_F(NodeMemory, ALivingRankKeepsItsDirectory) {
  const fs::path dir = make(supervised_prefix() + "a", false);
  EXPECT_FALSE(has_living_ranks(dir));
  const RankRecord record = RankRecord::create(dir / "records", 0, 1);
  EXPECT_TRUE(has_living_ranks(dir));
  remove_after(100.0 * kHour);
  EXPECT_TRUE(fs::exists(dir));
}

TEST_F(NodeMemory, OtherNamesLinksAndForeignFilesStay) {
  const fs::path other = make("longhaul-notes", true);
  const fs::path target = make("target", true);
  const fs::path link = memory_ / (supervised_prefix() + "link");
  fs::create_directory_symlink(target, link);
  write_file(memory_ / (supervised_prefix() + "file"), "text");
  remove_after(100.0 * kHour);
  EXPECT_TRUE(fs::exists(other) && fs::exists(target) && fs::is_symlink(link));
  EXPECT_TRUE(fs::exists(memory_ / (supervised_prefix() + "file")));
}

TEST_F(NodeMemory, CountsTheBytesOfStates) {
  EXPECT_EQ(state_bytes(make(supervised_prefix() + "a", true)), 5U);
  EXPECT_EQ(state_bytes(memory_ / "nowhere"), 0U);
}

}  // namespace
}  // namespace longhaul::run
