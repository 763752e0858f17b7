#include "longhaul/base/lines.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(Lines, AreWithoutTheirEndsAndTheLastMayLackIt) {
  using Lines = std::vector<std::string_view>;
  EXPECT_EQ(lines_of("a\n\nb\n"), (Lines{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\nb"), (Lines{"a", "b"}));
  EXPECT_EQ(lines_of(""), Lines{});
}

TEST(Lines, TheFirstOfAFileIsNothingWhereTheFileIsAbsent) {
  const TestDirectory dir;
  write_file(dir / "a", "one\ntwo\n");
  EXPECT_EQ(first_line(dir / "a"), "one");
  EXPECT_EQ(first_line(dir / "b"), "");
}

}  // namespace
}  // namespace longhaul
