#include "longhaul/system/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

rlim_t allowed() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

void limit_to(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(OpenFilesDeathTest, TheLimitIsRaisedWhereTheSystemAllowsIt) {
  EXPECT_EXIT(
      {
        limit_to(40, 400);
        need_open_files(100, "weights", "dir");
        ::_exit(allowed() > 100 && allowed() < 200 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(OpenFilesDeathTest, WhereItIsNotTheNumbersAreSaid) {
  EXPECT_EXIT(
      {
        limit_to(40, 60);
        const std::string said =
            message_of<InputError>([] { need_open_files(100, "weights", "dir"); });
        allow_open_files(100);  // raises the limit as far as the system allows
        const bool named =
            said.starts_with("[weights] dir needs 100 open files at once") &&
            said.find("and 60 are allowed") != std::string::npos;
        ::_exit(named && allowed() == 60 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(OpenFilesDeathTest, ALimitThatIsEnoughStays) {
  EXPECT_EXIT(
      {
        limit_to(200, 400);
        need_open_files(50, "weights", "dir");
        ::_exit(allowed() == 200 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace longhaul::system
