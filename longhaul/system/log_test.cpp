#include "longhaul/system/log.h"

#include <sstream>
#include <thread>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/full_disk.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

TEST(Logger, WritesToBothPlacesAndMarksWarnings) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    Logger log = Logger::to_file(dir / "log.txt");
    log.info("step 1");
    log.warning("low disk");
    log.to_file_only("file");
    log.to_terminal_only("screen");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "step 1\nwarning: low disk\nscreen\n");
  EXPECT_EQ(read_text(dir / "log.txt"), "step 1\nwarning: low disk\nfile\n");
}

TEST(Logger, WhatANameBringsAlongIsWrittenOut) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    Logger log = Logger::to_file(dir / "log.txt");
    log.info("a\033[2J");
    log.warning("b\nc");
    log.to_file_only("d\r");
    log.to_terminal_only("e\a");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "a\\x1b[2J\nwarning: b\\nc\ne\\x07\n");
  EXPECT_EQ(read_text(dir / "log.txt"), "a\\x1b[2J\nwarning: b\\nc\nd\\r\n");
}

TEST(Logger, AppendsToTheLogOfAnEarlierStart) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  Logger::to_file(dir / "log.txt").info("first");
  Logger::to_file(dir / "log.txt").info("second");
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(read_text(dir / "log.txt"), "first\nsecond\n");
}

TEST(Logger, ASilentOneWritesNothing) {
  ::testing::internal::CaptureStdout();
  Logger log;
  log.info("x");
  log.warning("x");
  log.to_terminal_only("x");
  EXPECT_TRUE(log.silent());
  EXPECT_FALSE(Logger::to_terminal().silent());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Logger, AStatusIsNeitherInTheFileNorInALogBeforeTenSeconds) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    Logger log = Logger::to_file(dir / "log.txt");
    log.status("train 1 of 5 steps");
    log.info("step 1");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "step 1\n");
  EXPECT_EQ(read_text(dir / "log.txt"), "step 1\n");
}

TEST(Logger, LinesOfManyThreadsStayWhole) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    Logger log = Logger::to_file(dir / "log.txt");
    std::vector<std::thread> threads;
    for (char name : {'a', 'b', 'c', 'd'}) {
      threads.emplace_back([&log, name] {
        for (int i = 0; i < 200; ++i) log.info(std::string(50, name));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ::testing::internal::GetCapturedStdout();
  std::istringstream lines(read_text(dir / "log.txt"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line, std::string(50, line.at(0)));
  }
  EXPECT_EQ(count, 800);
}

TEST(Logger, APlaceThatCannotBeWrittenIsNamed) {
  EXPECT_HAS(message_of<InputError>([] { Logger::to_file("/nonexistent/log.txt"); }),
             "/nonexistent/log.txt: open failed");
}

TEST(Logger, SaysOnTheTerminalAndLaterInTheFileWhatIsMissing) {
  const TestDirectory dir;
  ::testing::internal::CaptureStdout();
  {
    Logger log = Logger::to_file(dir / "log.txt");
    // The text that would go to the terminal goes to a file here, and the file needs
    // room.
    log.to_file_only(std::string(10'000, 'x'));
    {
      const FullDisk full(10'003);
      log.info("second");
      log.info("third");
    }
    log.info("fourth");
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_HAS(said, "second\n");
  EXPECT_HAS(said, "third\n");
  EXPECT_HAS(said, "log.txt cannot be written");
  EXPECT_EQ(read_text(dir / "log.txt").substr(10'000),
            "\nwarning: 2 of this log's lines could not be written here\nfourth\n");
}

}  // namespace
}  // namespace longhaul::system
