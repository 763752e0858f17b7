#include "longhaul/translate/shell_words.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

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

TEST(ShellWords, ReplaceVariablesThatTheTextSets) {
  EXPECT_EQ(split("A=1\nx $A ${A} \"$A b\" '$A'"), "A=1 ;; x|1|1|1 b|$A");
  EXPECT_EQ(split("A=\"--lr 1 --bf16\"; x $A \"$A\" --y=$A"),
            "A=--lr 1 --bf16 ;; x|--lr|1|--bf16|--lr 1 --bf16|--y=--lr|1|--bf16");
  EXPECT_EQ(split("A=1\nB=$A$A\nA=2\nx $B"), "A=1 ;; B=11 ;; A=2 ;; x|11");
  EXPECT_EQ(split("A=''\nx $A y"), "A= ;; x|y");
  EXPECT_EQ(split("export A=3 B=4\nx ${A:-9} ${C:-9} $B"),
            "export|A=3|B=4 ;; x|3|${C:-9}[$]|4");
  EXPECT_EQ(split("A=$N\nx $A"), "A=$N[$] ;; x|$N[$]");
  EXPECT_EQ(split("A=\"--a $N --b $(c d)\"\nx $A"),
            "A=--a $N --b $(c d)[$] ;; x|--a|$N[$]|--b|$(c d)[$]");
  EXPECT_EQ(split("A=$(nproc --all)\nx $A"), "A=$(nproc --all)[$] ;; x|$A[$]");
  EXPECT_EQ(split("A=1 x $A"), "A=1|x|$A[$]");
}

TEST(ShellWords, ReplaceArraysThatTheTextSets) {
  EXPECT_EQ(split("A=(\n --a 1 # why\n 'b c' \\\n --d\n)\nx ${A[@]}"), "x|--a|1|b|c|--d");
  EXPECT_EQ(split("A=('b c')\nx \"${A[@]}\""), "x|b c");
  EXPECT_EQ(split("A=(a)\nA+=(b $N)\nx ${A[*]} $A"), "x|a|b|$N[$]|$A[$]");
  EXPECT_EQ(split("declare -a A=(a)\nx ${A[@]}"), "declare|-a ;; x|a");
  EXPECT_EQ(split("A=()\nx ${A[@]} y"), "x|y");
  EXPECT_THROW(split("A=(a\nb"), InputError);
}

TEST(ShellWords, LeaveAVariableThatAConditionMaySet) {
  const std::string unknown = "x|$A[$]";
  for (const char* text :
       {"A=1\nif y; then\n A=2\nfi\nx $A", "A=1\ny && A=2\nx $A",
        "for A in 1 2; do\nx $A\ndone", "A=1\nf() {\n A=2\n}\nx $A", "A=1\nread A\nx $A",
        "A=1\nsource env.sh\nx $A", "A=1\nif y; then A=2; fi; x $A",
        "A=1\ncase y in\n b) A=2;;\nesac\nx $A"}) {
    const std::string made = split(text);
    EXPECT_TRUE(made.find(unknown) != std::string::npos) << text << ": " << made;
  }
  EXPECT_EQ(split("A=(a)\nif y; then\nA+=(b)\nfi\nx ${A[@]}"),
            "if|y ;; then ;; fi ;; x|a|${A[@]}[$]");
  EXPECT_EQ(split("A=1\nsource venv/bin/activate\nx $A"),
            "A=1 ;; source|venv/bin/activate ;; x|1");
}

TEST(ShellWords, ReplaceNoMoreThanAFileHolds) {
  std::string text = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) text += "A=$A$A\n";
  EXPECT_TRUE(message_of<InputError>([&] { split(text + "x $A"); }).find("4 MiB") !=
              std::string::npos);
}

}  // namespace
}  // namespace longhaul::translate
