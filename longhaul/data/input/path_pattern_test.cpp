#include "longhaul/data/input/path_pattern.h"

#include <gtest/gtest.h>

#include "tests/support/data_files.h"

namespace longhaul::data {
namespace {

class Patterns : public ::testing::Test {
 protected:
  void make(const std::string& name) const {
    fs::create_directories((dir_ / name).parent_path());
    dir_.write(name, "x");
  }
  /// Returns the matches without the test's directory, joined by blanks.
  std::string matches(const std::string& pattern) const {
    std::string text;
    for (const fs::path& path : expand_pattern(dir_ / pattern)) {
      text += (text.empty() ? "" : " ") + path.lexically_relative(dir_ / "").string();
    }
    return text;
  }
  TestDirectory dir_;
};

TEST_F(Patterns, OfTwoStarsDescendIntoEveryDirectoryInTheOrderOfBytes) {
  for (const char* name : {"c.jsonl", "a/b.jsonl", "a/x/d.jsonl", "a.jsonl", "B/e.jsonl",
                           "a/notes.txt", ".hidden/f.jsonl", "a/.g.jsonl"}) {
    make(name);
  }
  EXPECT_EQ(matches("**/*.jsonl"), "B/e.jsonl a.jsonl a/b.jsonl a/x/d.jsonl c.jsonl");
  EXPECT_EQ(matches("**/**/*.jsonl"), matches("**/*.jsonl"));
  EXPECT_EQ(matches("a/**/d.jsonl"), "a/x/d.jsonl");
  EXPECT_EQ(matches("**"), "B/e.jsonl a.jsonl a/b.jsonl a/notes.txt a/x/d.jsonl c.jsonl");
  EXPECT_EQ(matches("**/*"), matches("**"));
  EXPECT_EQ(matches("*"), "B a a.jsonl c.jsonl");
  EXPECT_EQ(matches("**/x"), "a/x");
  EXPECT_EQ(matches("**/*.csv"), "");
}

TEST_F(Patterns, DoNotDescendIntoLinkedDirectories) {
  make("real/a.jsonl");
  make("outside.jsonl");
  fs::create_directory_symlink(dir_ / "real", dir_ / "linked");
  fs::create_directory_symlink(dir_ / "", dir_ / "real/around");
  fs::create_symlink(dir_ / "outside.jsonl", dir_ / "real/file.jsonl");
  EXPECT_EQ(matches("**/*.jsonl"), "outside.jsonl real/a.jsonl real/file.jsonl");
  // A part with one star may name a linked directory.
  EXPECT_EQ(matches("link*/a.jsonl"), "linked/a.jsonl");
}

TEST_F(Patterns, WithTwoStarsBesideOtherCharactersAreRefused) {
  make("a/b.jsonl");
  EXPECT_HAS(input_error([&] { matches("**.jsonl"); }),
             "'**.jsonl' holds more than **; write for example 'corpus/**/*.jsonl'");
  EXPECT_HAS(input_error([&] { matches("a**/b.jsonl"); }), "'a**' holds more");
}

TEST_F(Patterns, ThatAreTheNameOfAFileMeanItUnlessTheyMatchOthersToo) {
  make("run[1].jsonl");
  make("plain.jsonl");
  EXPECT_EQ(matches("run[1].jsonl"), "run[1].jsonl");
  make("run1.jsonl");
  const std::string message = input_error([&] { matches("run[1].jsonl"); });
  EXPECT_HAS(message,
             "/run[1].jsonl has exactly this name, but as a pattern the name "
             "also matches 1 other, ");
  EXPECT_HAS(message, "/run1.jsonl;");
  EXPECT_EQ(matches("run\\[1].jsonl"), "run[1].jsonl");
  make("a*.jsonl");
  EXPECT_EQ(matches("a*.jsonl"), "a*.jsonl");
  make("ab.jsonl");
  EXPECT_HAS(input_error([&] { matches("a*.jsonl"); }),
             "/a*.jsonl has exactly this name");
}

TEST_F(Patterns, TakeTheNamesOfDirectoriesForThemselvesToo) {
  make("set[1]/a.jsonl");
  EXPECT_EQ(matches("set[1]/*.jsonl"), "set[1]/a.jsonl");
  make("set1/b.txt");  // the rest of the pattern does not match this file
  EXPECT_EQ(matches("set[1]/*.jsonl"), "set[1]/a.jsonl");
  make("set1/b.jsonl");
  EXPECT_HAS(input_error([&] { matches("set[1]/*.jsonl"); }), "has exactly this name");
}

TEST_F(Patterns, NameALinkToNothingSoThatItIsNotPassedOver) {
  make("a.jsonl");
  fs::create_symlink(dir_ / "gone", dir_ / "b.jsonl");
  EXPECT_EQ(matches("*.jsonl"), "a.jsonl b.jsonl");
}

TEST_F(Patterns, ThatMatchANameThatIsNotUtf8AreRefused) {
  make("caf\xE9.jsonl");
  EXPECT_HAS(input_error([&] { matches("*.jsonl"); }),
             "caf\\xe9.jsonl: the path is not "
             "UTF-8 (byte ");
  EXPECT_HAS(input_error([&] { matches("caf\xE9.jsonl"); }), "is 0xe9");
}

TEST_F(Patterns, WithoutAStarAreThePathThereOrNot) {
  EXPECT_EQ(matches("nothing.jsonl"), "nothing.jsonl");
}

}  // namespace
}  // namespace longhaul::data
