#include "longhaul/system/process_title.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace longhaul::system {
namespace {

std::string shown() {
  std::ifstream file("/proc/self/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

/// Returns this process's own arguments, where the kernel laid them out before any
/// environment variable was set. The tests that use it run in a process of their own.
char** own_arguments(int& argc) {
  const std::string text = shown();
  argc = 1 + static_cast<int>(std::ranges::count(text, '\0'));
  return environ - 1 - argc;
}

TEST(ProcessTitle, WithoutKeptArgumentsNothingHappens) {
  const std::string before = shown();
  set_process_title("other");
  EXPECT_EQ(shown(), before);
}

/// The test below runs this one in a process of its own, because a title cannot be taken
/// back.
TEST(ProcessTitle, DISABLED_InAProcessOfItsOwn) {
  int argc = 0;
  char** argv = own_arguments(argc);
  const std::string first = argv[0];
  char** kept = keep_arguments(argc, argv);
  EXPECT_EQ(kept[0], first);
  EXPECT_EQ(kept[argc], nullptr);
  ::setenv("LONGHAUL_TITLE_TEST", "kept", 1);
  // The second title is longer than all arguments together, and the third is short.
  for (const std::string& title : {std::string("longhaul rank 17 pp1 dp0 tp3 step 6"),
                                   std::string(200, 'y'), std::string("short")}) {
    set_process_title(title);
    EXPECT_EQ(shown(), title);
  }
  EXPECT_EQ(kept[0], first);
  EXPECT_STREQ(::getenv("LONGHAUL_TITLE_TEST"), "kept");
}

/// The child gets googletest's settings by the environment, because googletest takes its
/// own arguments out of argv.
TEST(ProcessTitle, IsWhatTheKernelShowsAlsoWhereArgumentsWereShorter) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("GTEST_ALSO_RUN_DISABLED_TESTS", "1", 1);
    ::setenv("GTEST_FILTER", "*InAProcessOfItsOwn", 1);
    ::execl("/proc/self/exe", "x", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace longhaul::system
