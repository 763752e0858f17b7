#include "longhaul/cluster/fleet/fleet.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "longhaul/base/error.h"
#include "longhaul/run/rank_record.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

class HeldDirectoriesOfAJob : public ::testing::Test {
 protected:
  bool all_gone() const { return !fs::exists(directories_.root); }

  TestDirectory dir_;
  NodeDirectories directories_{dir_ / "job"};
};

TEST_F(HeldDirectoriesOfAJob, AreOfThisUserAloneWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const HeldDirectories held(directories_);
  ::umask(before);
  for (const fs::path& path : {directories_.root, directories_.records(),
                               directories_.memory(), directories_.segments()}) {
    struct stat info{};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U) << path;
  }
}

TEST_F(HeldDirectoriesOfAJob, AnEndLeavesNothing) {
  const HeldDirectories held(directories_);
  write_file(directories_.records() / "rank_00000.record", "of a dead rank");
  write_file(directories_.segments() / "vader_segment.n1.0.1", "of a killed rank");
  held.clean_up();
  EXPECT_TRUE(all_gone());
}

TEST_F(HeldDirectoriesOfAJob, AStateForANextStartStays) {
  const HeldDirectories held(directories_);
  const fs::path part = directories_.memory() / "run_1/a1_s0_rank_00000.part";
  fs::create_directory(part.parent_path());
  write_file(part, "state");
  held.clean_up();
  EXPECT_EQ(read_text(part), "state");
  EXPECT_FALSE(fs::exists(directories_.records()));
  EXPECT_FALSE(fs::exists(directories_.segments()));
}

TEST_F(HeldDirectoriesOfAJob, NothingGoesThatAnotherAgentOrALivingRankUses) {
  const HeldDirectories held(directories_);
  {
    const HeldDirectories other(directories_);
    held.clean_up();
    EXPECT_TRUE(fs::exists(directories_.records()));
  }
  {
    const auto living = run::RankRecord::create(directories_.records(), 0, 1);
    held.clean_up();
    EXPECT_TRUE(fs::exists(run::rank_record_path(directories_.records(), 0)));
  }
}

TEST_F(HeldDirectoriesOfAJob, ADirectoryThatOthersMayEnterIsRefused) {
  fs::create_directory(directories_.root);
  fs::permissions(directories_.root, fs::perms::owner_all | fs::perms::group_exec);
  EXPECT_HAS(message_of<InputError>([&] { const HeldDirectories held(directories_); }),
             "is no directory of this user alone");
}

}  // namespace
}  // namespace longhaul::cluster
