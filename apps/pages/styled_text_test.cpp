#include "apps/pages/styled_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::apps {
namespace {

std::vector<std::string> lines_of(const Pieces& pieces, size_t columns,
                                  bool colour = false) {
  std::vector<std::string> lines;
  for (const DrawnLine& line : wrapped(pieces, columns, colour))
    lines.push_back(line.text);
  return lines;
}

using Texts = std::vector<std::string>;

TEST(StyledText, IsBrokenAtSpacesOfAnyPiece) {
  EXPECT_EQ(lines_of({{"one two"}, {" three", kBold}, {", four"}}, 9),
            (Texts{"one two", "three,", "four"}));
}

TEST(StyledText, BreaksAWordOnlyWhereItIsWiderThanALine) {
  EXPECT_EQ(lines_of({{"an incomprehensible word"}}, 8),
            (Texts{"an", "incompre", "hensible", "word"}));
}

TEST(StyledText, CountsColumnsAndNotBytes) {
  EXPECT_EQ(lines_of({{"ééé ééé"}}, 7), (Texts{"ééé ééé"}));
  EXPECT_EQ(lines_of({{"漢字漢字"}}, 4), (Texts{"漢字", "漢字"}));
  EXPECT_EQ(natural_columns({{"漢字 é"}}), 6);
}

TEST(StyledText, KeepsLinesThatAreEndedByHand) {
  EXPECT_EQ(lines_of({{"a\nb c"}}, 80), (Texts{"a", "b c"}));
  EXPECT_EQ(natural_columns({{"a\nb c"}}), 3);
  EXPECT_EQ(longest_word({{"a bcd ef"}}), 3);
}

TEST(StyledText, DrawsStylesWithColourAlone) {
  EXPECT_EQ(lines_of({{"a "}, {"b", kBold | kCode}}, 80, true),
            (Texts{"a \033[1;36mb\033[0m"}));
  EXPECT_EQ(lines_of({{"a "}, {"b", kBold | kCode}}, 80), (Texts{"a b"}));
}

TEST(StyledText, OfNothingIsOneEmptyLine) { EXPECT_EQ(lines_of({}, 10), (Texts{""})); }

}  // namespace
}  // namespace longhaul::apps
