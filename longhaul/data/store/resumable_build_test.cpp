#include "longhaul/data/store/resumable_build.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "longhaul/base/process.h"
#include "tests/support/data_files.h"

namespace longhaul::data {
namespace {

BuildKind test_kind() {
  return {.record = "whole.json",
          .foreign = "holds something else",
          .standing = "is there already",
          .occupation = "builds there"};
}

class ResumableBuildTest : public ::testing::Test {
 protected:
  ResumableBuildTest() { make_directories_durable(build_.work()); }
  void finish_work() const { write_text_durable(build_.work() / "whole.json", "new"); }

  TestDirectory dir_;
  ResumableBuild build_{dir_ / "out/", test_kind()};
};

TEST_F(ResumableBuildTest, TheFirstPlanStaysAndNamesWhatALaterPlanChanges) {
  const Json first = {{"inputs", "a"}, {"seed", 1}, {"width", 2}};
  EXPECT_EQ(build_.agree_on_plan(first), first);
  const Json later = {{"inputs", "a"}, {"seed", 3}, {"depth", 4}};
  const Json begun = build_.agree_on_plan(later);
  EXPECT_EQ(begun, first);
  EXPECT_EQ(ResumableBuild::changed_entries(begun, later),
            (std::vector<std::string>{"depth", "seed"}));
  EXPECT_EQ(ResumableBuild::changed_entries(begun, first), std::vector<std::string>());
  EXPECT_EQ(fs::file_size(build_.plan_file()), read_text(build_.plan_file()).size());
  build_.clear(build_.plan_file());
  EXPECT_TRUE(fs::exists(build_.plan_file()));
  build_.clear();
  EXPECT_TRUE(fs::is_empty(build_.work()));
}

TEST_F(ResumableBuildTest, ASecondHolderOfTheLockIsRefusedUntilTheFirstIsGone) {
  {
    ResumableBuild other(dir_ / "out", test_kind());
    other.lock_beside();
    EXPECT_HAS(input_error([&] { build_.lock_beside(); }), "builds there");
    EXPECT_FALSE(build_.is_locked());
  }
  build_.lock_beside();
  EXPECT_TRUE(build_.is_locked());
}

TEST_F(ResumableBuildTest, CommitGivesTheNameAndLeavesNothingElse) {
  build_.lock_beside();
  finish_work();
  fs::create_directory(dir_ / "out.old");  // belongs to another program
  build_.commit(/*replace=*/true);
  EXPECT_EQ(dir_.listing(), "out out.old");
  EXPECT_EQ(read_text(dir_ / "out/whole.json"), "new");
}

TEST_F(ResumableBuildTest, CommitReplacesAResultOnlyWhenAskedAndForeignThingsNever) {
  for (const bool known : {true, false}) {
    fs::create_directories(build_.out());
    if (known) write_text_durable(build_.out() / "whole.json", "old");
    make_directories_durable(build_.work());
    finish_work();
    build_.lock_beside();
    EXPECT_HAS(input_error([&] { build_.commit(/*replace=*/!known); }),
               known ? "is there already" : "holds something else");
    EXPECT_TRUE(fs::exists(build_.work() / "whole.json"));
    if (!known) continue;
    build_.commit(/*replace=*/true);
    EXPECT_EQ(dir_.listing(), "out");
    EXPECT_EQ(read_text(build_.out() / "whole.json"), "new");
    fs::remove_all(build_.out());
  }
}

TEST_F(ResumableBuildTest, FilesOfLivingProcessesStayUnlessAllAreToGo) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  const std::string host = host_name();
  dir_.write("kept.bin", "");
  dir_.write("living.bin" + temporary_suffix(), "");
  dir_.write(fmt::format("gone.bin.temporary-{}-{}", host, ended), "");
  dir_.write(fmt::format("gone.json.tmp.{}.{}", host, ended), "");
  dir_.write(fmt::format("elsewhere.json.tmp.other-host.{}", ended), "");
  remove_unfinished_files(dir_ / "", /*all=*/false);
  EXPECT_EQ(dir_.listing(),
            fmt::format("elsewhere.json.tmp.other-host.{} kept.bin living.bin{} "
                        "out.building",
                        ended, temporary_suffix()));
  remove_unfinished_files(dir_ / "", /*all=*/true);
  EXPECT_EQ(dir_.listing(), "kept.bin out.building");
}

}  // namespace
}  // namespace longhaul::data
