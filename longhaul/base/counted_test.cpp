#include "longhaul/base/counted.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul {
namespace {

TEST(Counted, OneIsSingularAndAllElsePlural) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(counted(1359146, "token"), "1,359,146 tokens");
  EXPECT_EQ(counted(1, "directory", "directories"), "1 directory");
  EXPECT_EQ(counted(3, "directory", "directories"), "3 directories");
}

TEST(Listed, NamesPastTheMostAreCounted) {
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(listed(names, 3), "a, b, c");
  EXPECT_EQ(listed(names, 2), "a, b and 1 more");
  EXPECT_EQ(listed({}, 2), "");
}

}  // namespace
}  // namespace longhaul
