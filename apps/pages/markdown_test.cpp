#include "apps/pages/markdown.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::apps {
namespace {

TEST(Markdown, WithoutColourKeepsTheMarksOfHeadingsAndCode) {
  EXPECT_EQ(terminal_text("# A *page*\n\nSee `x --y`\nand **this**.\n", 80, false),
            "# A page\n\nSee `x --y` and this.\n");
}

TEST(Markdown, WithColourDrawsHeadingsAndCode) {
  EXPECT_EQ(terminal_text("## Some\n\nSee `x`.\n", 80, true),
            "\033[1mSome\033[0m\n\nSee \033[36mx\033[0m.\n");
}

TEST(Markdown, NamesTheTargetOfALinkWhoseWordsDoNot) {
  EXPECT_EQ(terminal_text("[data.md](data.md), [text](data.md#text), [below](#x), "
                          "[uv](https://a.org/uv), [Adding](../ADDING.md)\n",
                          80, false),
            "data.md, text (data.md#text), below, uv (https://a.org/uv), Adding\n");
}

TEST(Markdown, IndentsListsAndCodeAndLeavesCodeUnwrapped) {
  EXPECT_EQ(
      terminal_text("1. one two three four five six\n2. b\n\n   - c\n\n```sh\nrun   a "
                    "very long command line\n\n# b\n```\n",
                    22, false),
      "1. one two three four\n   five six\n\n2. b\n\n   - c\n\n"
      "    run   a very long command line\n\n    # b\n");
}

TEST(Markdown, DrawsTablesWithAlignedColumns) {
  EXPECT_EQ(
      terminal_text("| a | n |\n|---|--:|\n| `x` or \\| | 10 |\n| y | 5 |\n", 80, false),
      "a          n\n────────────\n`x` or |  10\ny          5\n");
}

TEST(Markdown, HandsOnNoControlCharacter) {
  const std::string text =
      terminal_text("a\033[2Jb `c\033]0;d\a`\n\n    e\033c\n", 80, false);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("a\\x1b[2Jb"), std::string::npos);
}

TEST(Markdown, HasHeadingsNamedAsGitHubNamesThem) {
  const std::string page =
      "# A\n\nx\n\n## What `[parallel]` does, and why\n\ny\n\n### z_1\n\n## B\n\n## B\n";
  const std::vector<Heading> headings = headings_of(page);
  ASSERT_EQ(headings.size(), 5);
  EXPECT_EQ(headings[1].anchor, "what-parallel-does-and-why");
  EXPECT_EQ(headings[2].anchor, "z_1");
  EXPECT_EQ(section_of(page, headings, 1),
            "## What `[parallel]` does, and why\n\ny\n\n### z_1\n\n");
  EXPECT_EQ(section_of(page, headings, 0), page);
  EXPECT_EQ(section_of(page, headings, 3), "## B\n\n");
  EXPECT_EQ(headings[4].anchor, "b-1");
  EXPECT_EQ(section_of(page, headings, 4), "## B\n");
}

TEST(Markdown, InsideCodeIsNoHeading) {
  EXPECT_EQ(headings_of("# A\n\n```\n# no\n```\n").size(), 1);
}

}  // namespace
}  // namespace longhaul::apps
