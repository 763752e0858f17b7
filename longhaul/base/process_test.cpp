#include "longhaul/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <thread>
#include <vector>

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(Process, MemoryGrowsWithWhatIsTouched) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = resident_bytes();
  std::vector<char> block(static_cast<size_t>(kBytes));
  std::memset(block.data(), 1, block.size());
  EXPECT_GE(resident_bytes() - before, kBytes * 9 / 10);
  EXPECT_GE(peak_resident_bytes(), before + kBytes * 9 / 10);
}

TEST(Process, AMappedFileIsNoAnonymousMemory) {
  constexpr size_t kBytes = size_t{64} << 20;
  const TestDirectory dir;
  write_file(dir / "store", std::string(kBytes, 'x'));
  const ResidentParts before = resident_parts();
  const int file = ::open((dir / "store").c_str(), O_RDONLY | O_CLOEXEC);
  // MAP_POPULATE lets the kernel read the pages. If this test read them, ThreadSanitizer
  // would keep memory of its own for each page, and that memory is anonymous.
  void* const mapped =
      ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const ResidentParts with_file = resident_parts();
  constexpr auto kMost = static_cast<int64_t>(kBytes * 9 / 10);
  constexpr auto kLittle = static_cast<int64_t>(kBytes / 8);
  EXPECT_GE(*with_file.file - *before.file, kMost);
  EXPECT_LE(*with_file.anonymous - *before.anonymous, kLittle);
  const std::vector<char> block(kBytes, 1);
  const ResidentParts with_block = resident_parts();
  EXPECT_GE(*with_block.anonymous - *with_file.anonymous, kMost);
  EXPECT_LE(*with_block.file - *with_file.file, kLittle);
  EXPECT_NEAR(static_cast<double>(*with_block.anonymous + *with_block.file),
              static_cast<double>(resident_bytes()), static_cast<double>(kLittle));
  ::munmap(mapped, kBytes);
  ::close(file);
}

TEST(Process, StartTimeCountsUp) {
  const double first = seconds_since_process_start();
  EXPECT_GE(first, 0.0);
  EXPECT_LT(first, 3600.0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NEAR(seconds_since_process_start() - first, 0.05, 0.04);
}

TEST(Process, AProcessHasAStartAndOneThatIsDeadHasNone) {
  EXPECT_GT(process_start(::getpid()), 0);
  EXPECT_EQ(process_start(-1), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  // The child has ended, and its parent has not reaped it.
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(process_start(child), 0);
  ::waitpid(child, nullptr, 0);
}

TEST(Process, TimesAreUtcAndAgree) {
  EXPECT_TRUE(
      std::regex_match(utc_now(), std::regex(R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ)")))
      << utc_now();
  EXPECT_NEAR(unix_time(), static_cast<double>(std::time(nullptr)), 2.0);
}

TEST(Process, HostAndJobComeFromTheSystem) {
  EXPECT_FALSE(host_name().empty());
  ::setenv("SLURM_JOB_ID", "4711", 1);
  EXPECT_EQ(job_id(), "4711");
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(job_id(), "");
}

}  // namespace
}  // namespace longhaul
