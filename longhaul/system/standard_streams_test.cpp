#include "longhaul/system/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>

#include "longhaul/base/file.h"
#include "longhaul/system/lossy_writer.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

/// Makes a pipe without a reader the standard output.
void lose_the_reader() {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(3);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[0]);
}

TEST(StandardStreamsDeathTest, AFileGetsNoStandardNumber) {
  const TestDirectory dir;
  EXPECT_EXIT(
      {
        for (int fd = 0; fd < 3; ++fd) ::close(fd);
        guard_standard_streams();
        const File file = File::create(dir / "run.lock");
        fmt::print("a line of the log\n");
        fmt::print(stderr, "an error\n");
        std::fflush(stdout);
        ::_exit(file.fd() > 2 && file.size() == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreamsDeathTest, AReaderThatHasGoneEndsNoWorkWhoseResultIsInFiles) {
  EXPECT_EXIT(
      {
        lose_the_reader();
        guard_standard_streams();
        let_output_fail();
        for (int line = 0; line < 3; ++line) {
          fmt::print("line {}\n", line);
          if (std::fflush(stdout) != 0) ::_exit(2);
        }
        ::_exit(output_error() == EPIPE ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreamsDeathTest, AResultThatNobodyReadsIsNoSuccess) {
  EXPECT_EXIT(
      {
        lose_the_reader();
        guard_standard_streams();
        fmt::print("a result\n");
        const bool failed = std::fflush(stdout) != 0;
        ::_exit(failed && output_reader_has_gone() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreamsDeathTest, AFullDiskIsNoReaderThatHasGone) {
  EXPECT_EXIT(
      {
        ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
        guard_standard_streams();
        fmt::print("a result\n");
        const bool failed = std::fflush(stdout) != 0;
        ::_exit(failed && output_error() == ENOSPC && !output_reader_has_gone() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreamsDeathTest, AnErrorThatNobodySeesThrowsNothing) {
  EXPECT_EXIT(
      {
        ::dup2(::open("/dev/full", O_WRONLY), STDERR_FILENO);
        guard_standard_streams();
        try {
          fmt::print(stderr, "longhaul: error: {}\n", "x");
        } catch (const std::system_error&) {
          ::_exit(1);
        }
        ::_exit(::fileno(stderr) == STDERR_FILENO ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StandardStreamsDeathTest, AReaderThatTakesNothingHoldsNoWorkWhoseResultIsInFiles) {
  EXPECT_EXIT(
      {
        int ends[2];
        if (::pipe(ends) != 0) ::_exit(3);
        ::dup2(ends[1], STDOUT_FILENO);
        ::dup2(ends[1], STDERR_FILENO);
        guard_standard_streams();
        let_output_fail();
        ::alarm(60);
        const std::string line(100, 'x');
        for (int i = 0; i < 10000; ++i) {
          fmt::print(i % 2 == 0 ? stdout : stderr, "{}\n", line);
        }
        ::_exit(std::fflush(stdout) == 0 && output_error() == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(LossyWriter, AReaderThatComesBackLearnsHowManyLinesItLacks) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  LossyWriter writer(ends[1], 0.01);
  // The pipe is full in the middle of a line.
  const std::string line = std::string(9999, 'x') + "\n";
  int64_t written = 0;
  for (; written < 100; ++written) EXPECT_EQ(writer.write(line), 0);
  const auto read_all = [&] {
    std::string text;
    std::array<char, 4096> piece{};
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (ssize_t n = 0; (n = ::read(ends[0], piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<size_t>(n));
    }
    return text;
  };
  const std::string first = read_all();
  const int64_t whole = std::ranges::count(first, '\n');
  EXPECT_GT(whole, 2);
  EXPECT_LT(whole, written);
  EXPECT_NE(first.back(), '\n');
  EXPECT_EQ(writer.write("after\n"), 0);
  EXPECT_EQ(read_all(),
            fmt::format("\nwarning: {} lines of this output are missing here, since "
                        "nobody read it\nafter\n",
                        written - whole));
  EXPECT_EQ(writer.write("next\n"), 0);
  EXPECT_EQ(read_all(), "next\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StandardStreamsDeathTest, WhatIsWrittenArrivesInOrder) {
  EXPECT_EXIT(
      {
        guard_standard_streams();
        for (int i = 0; i < 3; ++i) fmt::print(stderr, "{} ", i);
        std::fputs("end", stderr);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "^0 1 2 end$");
}

}  // namespace
}  // namespace longhaul::system
