#include "longhaul/cluster/process/command.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

TEST(Command, GivesBothStreamsAndTheExitCode) {
  const CommandResult result =
      run_command({"sh", "-c", "echo out; echo err >&2; exit 75"});
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_FALSE(result.ok());
  EXPECT_FALSE(result.timed_out);
}

TEST(Command, ArgumentsReachNoShell) {
  EXPECT_EQ(run_command({"printf", "%s|", "$HOME", "a b", "`id`", "; id"}).output,
            "$HOME|a b|`id`|; id|");
}

TEST(Command, ReadsTheFileThatIsItsInputAndElseNothing) {
  const TestDirectory dir;
  write_file(dir / "in", "words\n");
  CommandOptions options;
  EXPECT_EQ(run_command({"cat"}, options).output, "");
  options.input = (dir / "in").string();
  EXPECT_EQ(run_command({"cat"}, options).output, "words\n");
}

TEST(Command, WhoLooksMaySignalIt) {
  CommandOptions options;
  int looks = 0;
  options.look = [&] { return ++looks == 3 ? SIGTERM : 0; };
  EXPECT_EQ(run_command({"sleep", "60"}, options).exit_code, 128 + SIGTERM);
  EXPECT_GE(looks, 3);  // until the signal has ended the command
}

TEST(Command, SharedOutputIsWrittenAndNotKept) {
  CommandOptions options;
  options.shares_output = true;
  testing::internal::CaptureStdout();
  const CommandResult result = run_command({"echo", "shared"}, options);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "shared\n");
  EXPECT_EQ(result.output, "");
  EXPECT_TRUE(result.ok());
}

TEST(Command, ASignalIsToldByItsNumber) {
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}).exit_code, 128 + SIGKILL);
}

TEST(Command, TheDeadlineEndsTheWholeGroup) {
  CommandOptions options;
  options.deadline_seconds = 0.3;
  const CommandResult result =
      run_command({"sh", "-c", "echo begun; sleep 60 & echo $!; wait"}, options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.ok());
  EXPECT_LT(result.seconds, 10);
  ASSERT_TRUE(result.output.starts_with("begun\n"));
  const pid_t grandchild = std::stoi(result.output.substr(6));
  for (int i = 0; i < 500 && ::kill(grandchild, 0) == 0; ++i) {
    // The process may stay as a zombie until init takes it.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto state =
        run_command({"ps", "-o", "stat=", "-p", std::to_string(grandchild)});
    if (state.output.starts_with("Z")) break;
    ASSERT_LT(i, 499);
  }
}

TEST(Command, WhatItLeavesInTheBackgroundHoldsNobodyUp) {
  const CommandResult result = run_command({"sh", "-c", "setsid sleep 3 & echo done"});
  EXPECT_EQ(result.output, "done\n");
  EXPECT_TRUE(result.ok());
  EXPECT_LT(result.seconds, 2);
}

TEST(Command, OutputIsBounded) {
  CommandOptions options;
  options.output_bytes = 1000;
  const CommandResult result =
      run_command({"sh", "-c", "head -c 5000000 /dev/zero"}, options);
  EXPECT_EQ(result.output.size(), 1000u);
  EXPECT_TRUE(result.cut_short);
  EXPECT_TRUE(result.ok());
}

TEST(Command, TheEnvironmentReachesItAndItHasNoInput) {
  CommandOptions options;
  options.environment = {{"LONGHAUL_A", "1=2"}, {"HOME", ""}};
  EXPECT_EQ(run_command({"sh", "-c", "cat; echo \"|$LONGHAUL_A|${HOME-none}\""}, options)
                .output,
            "|1=2|none\n");
}

TEST(Command, SignalsAreAtTheirDefaults) {
  struct sigaction before{};
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGTERM, &ignore, &before);
  const CommandResult result = run_command({"sh", "-c", "kill -TERM $$; echo lived"});
  ::sigaction(SIGTERM, &before, nullptr);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(result.output, "");
}

TEST(Command, AProgramThatIsNotThereIsNamed) {
  const std::string message =
      message_of<TemporaryError>([] { run_command({"longhaul-no-such-program", "x"}); });
  EXPECT_HAS(message, "longhaul-no-such-program cannot be run");
}

TEST(RequireProgram, OneThatIsNotInPathIsNamedWithWhatToDo) {
  EXPECT_TRUE(has_program("sh"));
  EXPECT_FALSE(has_program("no-such-mpirun"));
  EXPECT_NO_THROW(require_program("sh", "launch", "install it"));
  EXPECT_HAS(message_of<InputError>(
                 [] { require_program("no-such-mpirun", "launch", "install Open MPI"); }),
             "[launch] there is no no-such-mpirun in PATH; install Open MPI");
  // A directory of that name is no program.
  EXPECT_THROW(require_program("..", "launch", ""), InputError);
}

}  // namespace
}  // namespace longhaul::cluster
