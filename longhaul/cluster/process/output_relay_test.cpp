#include "longhaul/cluster/process/output_relay.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

constexpr double kLimitSeconds = 60.0;

/// Gives this process another standard output for as long as it lives.
class OtherOutput {
 public:
  explicit OtherOutput(int fd) : before_(::dup(STDOUT_FILENO)) {
    ::dup2(fd, STDOUT_FILENO);
  }
  ~OtherOutput() {
    ::dup2(before_.get(), STDOUT_FILENO);
    ::signal(SIGPIPE, pipe_before_);
  }
  OtherOutput(const OtherOutput&) = delete;
  OtherOutput& operator=(const OtherOutput&) = delete;

 private:
  Descriptor before_;
  // The programs of longhaul ignore SIGPIPE, so this test ignores it too.
  sighandler_t pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
};

int run_to_end(const std::string& script) {
  JobStep step = JobStep::start({"sh", "-c", script}, {});
  const system::Stopwatch watch;
  while (watch.seconds() < kLimitSeconds) {
    if (const auto end = step.poll()) return end->exit_code;
    ::usleep(5000);
  }
  return -1;
}

TEST(OutputRelay, ALauncherDoesNotSeeThatTheReaderHasGone) {
  Pipe pipe = make_pipe("test");
  const OtherOutput output(pipe.write.get());
  pipe.read.reset();
  // dd, or the shell's echo, would fail if its pipe had no reader.
  EXPECT_EQ(run_to_end("dd if=/dev/zero bs=65536 count=64 2> /dev/null && echo all"), 0);
}

TEST(OutputRelay, AReaderGetsEverythingInOrder) {
  const TestDirectory dir;
  Pipe pipe = make_pipe("test");
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::dup2(pipe.read.get(), STDIN_FILENO);
    pipe.write.reset();
    const std::string to = "cat > " + (dir / "seen").string();
    ::execlp("sh", "sh", "-c", to.c_str(), nullptr);
    ::_exit(1);
  }
  {
    const OtherOutput output(pipe.write.get());
    EXPECT_EQ(run_to_end("seq 1 200000"), 0);
  }
  pipe.write.reset();
  ASSERT_EQ(::waitpid(reader, nullptr, 0), reader);
  std::string expected;
  for (int i = 1; i <= 200000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(read_text(dir / "seen"), expected);
}

TEST(OutputRelay, AReaderThatTakesNothingHoldsNeitherTheLauncherNorThisProcess) {
  const Pipe pipe = make_pipe("test");
  const OtherOutput output(pipe.write.get());
  // The output is larger than what all pipes on the way hold.
  EXPECT_EQ(run_to_end("seq 1 400000"), 0);
}

TEST(OutputRelay, AFileIsWrittenByTheLauncherItself) {
  const TestDirectory dir;
  {
    const File file = File::create(dir / "log");
    const OtherOutput output(file.fd());
    EXPECT_LT(OutputRelay().launcher_end(), 0);
    EXPECT_EQ(run_to_end("echo written"), 0);
  }
  EXPECT_EQ(read_text(dir / "log"), "written\n");
}

}  // namespace
}  // namespace longhaul::cluster
