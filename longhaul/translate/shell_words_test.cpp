#include "longhaul/translate/shell_words.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/test_files.h"

namespace longhaul::translate {
namespace {

/// "a|b c" for the words "a" and "b c"; a word with a variable has a $ behind it.
std::string split(std::string_view text) {
  std::string out;
  for (const ShellCommand& command : split_shell_text(text, "t")) {
    if (!out.empty()) out += " ;; ";
    for (size_t i = 0; i < command.size(); ++i) {
      out += (i == 0 ? "" : "|") + command[i].text + (command[i].variable ? "[$]" : "");
    }
  }
  return out;
}

TEST(ShellWords, AreThoseOfAShell) {
  EXPECT_EQ(split("a b  c\td"), "a|b|c|d");
  EXPECT_EQ(split("a 'b  c' \"d e\"f"), "a|b  c|d ef");
  EXPECT_EQ(split("a \\\n  b \\\r\n c"), "a|b|c");
  EXPECT_EQ(split("a\\ b \"q\\\"q\" 'q\\q'"), "a b|q\"q|q\\q");
  EXPECT_EQ(split("a '' b"), "a||b");
  EXPECT_EQ(split("# all\na # rest\nb#c"), "a ;; b#c");
}

TEST(ShellWords, CommandsEndWhereAShellEndsThem) {
  EXPECT_EQ(split("a; b && c || d | e |& f & g\nh"),
            "a ;; b ;; c ;; d ;; e ;; f ;; g ;; h");
  EXPECT_EQ(split("a ';' \"|\""), "a|;||");
}

TEST(ShellWords, RedirectionsAreLeftOut) {
  EXPECT_EQ(split("a > log b"), "a|b");
  EXPECT_EQ(split("a 2>&1 b >>x 2>/dev/null"), "a|b");
  EXPECT_EQ(split("a &> log"), "a");
  EXPECT_EQ(split("a --n 2 <in"), "a|--n|2");
}

TEST(ShellWords, NothingIsReplaced) {
  EXPECT_EQ(split("a $B ${C:-x y} $(d e) `f g` \"$H\""),
            "a|$B[$]|${C:-x y}[$]|$(d e)[$]|`f g`[$]|$H[$]");
  EXPECT_EQ(split("a '$B' \\$C $ ~/d e~"), "a|$B|$C|$|~/d[$]|e~");
}

TEST(ShellWords, AnOpenQuoteIsNamedWithItsLine) {
  const auto message = [](std::string_view text) {
    return message_of<InputError>([&] { split_shell_text(text, "cmd.sh"); });
  };
  EXPECT_NE(message("a\nb 'c").find("cmd.sh:2: a quote (') is opened"),
            std::string::npos);
  EXPECT_NE(message("a \"c").find("cmd.sh:1: a quote (\") is opened"), std::string::npos);
  EXPECT_NE(message("a `c").find("a command (`)"), std::string::npos);
  EXPECT_NE(message("a $(c").find("$( is opened"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::translate
