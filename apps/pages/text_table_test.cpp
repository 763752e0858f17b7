#include "apps/pages/text_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::apps {
namespace {

TextTable example() {
  return {{{{{"name"}}, {{"count"}}}, {{{"apples"}}, {{"3"}}}, {{{"a pear"}}, {{"12"}}}},
          {false, true}};
}

TEST(TextTable, AlignsItsColumns) {
  EXPECT_EQ(table_lines(example(), 80, false),
            (std::vector<std::string>{"name    count", "─────────────", "apples      3",
                                      "a pear     12"}));
}

TEST(TextTable, WrapsCellsAndPartsRowsThatWrap) {
  TextTable table = example();
  table.rows[1][0] = {{"apples that are green"}};
  EXPECT_EQ(table_lines(table, 18, false),
            (std::vector<std::string>{"name         count", "──────────────────",
                                      "apples that      3", "are green", "",
                                      "a pear          12"}));
}

TEST(TextTable, GivesWideColumnsWhatNarrowOnesLeave) {
  EXPECT_EQ(column_widths({5, 6}, 20), (std::vector<size_t>{5, 6}));
  EXPECT_EQ(column_widths({5, 60, 70}, 45), (std::vector<size_t>{5, 20, 20}));
  EXPECT_EQ(column_widths({90, 5, 60, 12}, 50), (std::vector<size_t>{16, 5, 17, 12}));
}

TEST(TextTable, BecomesAListInAWindowTooNarrowForIt) {
  EXPECT_EQ(table_lines(example(), 8, false),
            (std::vector<std::string>{"name:", "apples", "count: 3", "", "name: a",
                                      "pear", "count:", "12"}));
}

}  // namespace
}  // namespace longhaul::apps
