#include "longhaul/base/append_file.h"

#include <vector>

#include "longhaul/base/json/jsonl.h"
#include "tests/support/full_disk.h"
#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(AppendFile, APieceIsWrittenWholeOrNotAtAll) {
  const TestDirectory dir;
  std::vector<std::string> told;
  AppendFile file(dir / "lines");
  file.on_trouble([&](const std::string& line) { told.push_back(line); });
  EXPECT_TRUE(file.append("one\n"));
  {
    const FullDisk full(6);
    EXPECT_FALSE(file.append("two is cut\n"));
    EXPECT_EQ(read_text(dir / "lines"), "one\n");
    EXPECT_FALSE(file.append("three is cut\n"));
    EXPECT_TRUE(file.append("4\n"));  // the disk has room for these bytes
  }
  EXPECT_TRUE(file.append("five\n"));
  EXPECT_EQ(read_text(dir / "lines"), "one\n4\nfive\n");
  EXPECT_EQ(file.lost(), 2);
  ASSERT_EQ(told.size(), 2U);  // one message tells of both lines
  EXPECT_HAS(told[0], (dir / "lines").string() + " cannot be written: File too large");
  EXPECT_HAS(told[0], "the run goes on");
  EXPECT_HAS(told[1], "is written again; 2 lines are missing there");
}

TEST(AppendFile, WhatAnotherProcessHasAppendedStays) {
  const TestDirectory dir;
  AppendFile one(dir / "lines");
  AppendFile other(dir / "lines");
  one.append("one\n");
  other.append("other\n");
  {
    const FullDisk full(12);
    EXPECT_FALSE(one.append("too long\n"));
  }
  EXPECT_EQ(read_text(dir / "lines"), "one\nother\n");
}

TEST(AppendFile, AFileThatIsRotatedOrRemovedIsBegunAnew) {
  const TestDirectory dir;
  std::vector<std::string> told;
  AppendFile file(dir / "lines");
  file.begin_with("head\n");
  file.on_trouble([&](const std::string& line) { told.push_back(line); });
  EXPECT_TRUE(file.append("one\n"));
  fs::rename(dir / "lines", dir / "lines.1");
  EXPECT_TRUE(file.append("two\n"));
  EXPECT_TRUE(file.append("three\n"));
  EXPECT_EQ(read_text(dir / "lines.1"), "one\n");
  EXPECT_EQ(read_text(dir / "lines"), "head\ntwo\nthree\n");
  fs::remove(dir / "lines");
  // The program that rotates a file may also make the next one.
  write_file(dir / "lines", "theirs\n");
  EXPECT_TRUE(file.append("four\n"));
  EXPECT_EQ(read_text(dir / "lines"), "theirs\nfour\n");
  ASSERT_EQ(told.size(), 2U);  // one message for each new file
  EXPECT_HAS(told[0], (dir / "lines").string() + " was renamed or removed");
  EXPECT_EQ(file.lost(), 0);
}

TEST(AppendFile, WhereTheDirectoryIsGoneLinesAreLostAndToldUntilItIsBack) {
  const TestDirectory dir;
  std::vector<std::string> told;
  fs::create_directory(dir / "run");
  AppendFile file(dir / "run" / "lines");
  file.on_trouble([&](const std::string& line) { told.push_back(line); });
  fs::remove_all(dir / "run");
  EXPECT_FALSE(file.append("one\n"));
  EXPECT_FALSE(file.append("two\n"));
  EXPECT_FALSE(fs::exists(dir / "run"));
  fs::create_directory(dir / "run");
  EXPECT_TRUE(file.append("three\n"));
  EXPECT_EQ(read_text(dir / "run" / "lines"), "three\n");
  EXPECT_EQ(file.lost(), 2);
  ASSERT_EQ(told.size(), 3U);
  EXPECT_HAS(told[0], "cannot be written: ");
  EXPECT_HAS(told[1], "a new file of this name is begun");
  EXPECT_HAS(told[2], "is written again; 2 lines are missing there");
}

TEST(AppendFile, JsonLinesStayReadableOverAFullDisk) {
  const TestDirectory dir;
  std::vector<std::string> told;
  JsonLines out(dir / "m.jsonl", [&](const std::string& line) { told.push_back(line); });
  EXPECT_TRUE(out.append({{"step", 1}}));
  {
    const FullDisk full(16);
    EXPECT_FALSE(out.append({{"step", 2}}));
  }
  EXPECT_TRUE(out.append({{"step", 3}}));
  EXPECT_EQ(read_text(dir / "m.jsonl"), "{\"step\":1}\n{\"step\":3}\n");
  EXPECT_EQ(out.lost(), 1);
  EXPECT_EQ(told.size(), 2U);
}

}  // namespace
}  // namespace longhaul
