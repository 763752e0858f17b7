#include "apps/start/launch_ground.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

Environment with(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string refused_directory(const fs::path& dir) {
  try {
    check_mpirun_directory(dir);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchGround, MpirunsDirectoryIsWhereMpirunLooksForIt) {
  EXPECT_EQ(mpirun_directory(with({})), "/tmp");
  EXPECT_EQ(mpirun_directory(with({{"TMPDIR", ""}, {"TMP", "/c"}})), "/c");
  EXPECT_EQ(mpirun_directory(with({{"TMPDIR", "/b"}, {"TMP", "/c"}})), "/b");
  EXPECT_EQ(
      mpirun_directory(with({{"TMPDIR", "/b"}, {"OMPI_MCA_orte_tmpdir_base", "/a"}})),
      "/a");
}

TEST(LaunchGround, ADirectoryThatCannotBeWrittenIsRefusedWithWhatToDo) {
  const TestDirectory scratch;
  EXPECT_EQ(refused_directory(scratch.path()), "");
  EXPECT_EQ(refused_directory(scratch / "new"), "");
  EXPECT_TRUE(fs::is_empty(scratch / "new"));
  // Root may write anywhere else, but cannot make a directory below a file either.
  write_text_durable(scratch / "file", "x");
  EXPECT_EQ(
      refused_directory(scratch / "file/below"),
      "[launch] mpirun keeps its files in " + (scratch / "file/below").string() +
          ", where no directory or no file of 10.0 MB can be made: Not a directory; "
          "set TMPDIR to a "
          "directory that can be written, such as /tmp");
  EXPECT_NE(refused_directory("/proc"), "");
}

TEST(LaunchGround, AUserWithoutAnEntryNeedsAHomeAndNoSsh) {
  EXPECT_NO_THROW(check_mpirun_user(with({}), true, true));
  EXPECT_NO_THROW(check_mpirun_user(with({{"HOME", "/h"}}), false, false));
  EXPECT_THROW(check_mpirun_user(with({{"HOME", "/h"}}), false, true), ConfigError);
  EXPECT_THROW(check_mpirun_user(with({{"HOME", ""}}), false, false), ConfigError);
  EXPECT_THROW(check_mpirun_user(with({}), false, false), ConfigError);
}

TEST(LaunchGround, ThisMachineReachesItself) { EXPECT_NO_THROW(check_loopback()); }

}  // namespace
}  // namespace longhaul::apps
