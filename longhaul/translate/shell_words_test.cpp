#include "longhaul/translate/shell_words.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::translate {
namespace {

/// "a|b c" for the words "a" and "b c"; a word with a variable has a $ behind it.
std::string split(std::string_view text, bool whole = false) {
  std::string out;
  ShellSettings settings;
  settings.whole = whole;
  for (const ShellCommand& command : read_shell_text(text, "t", settings).commands) {
    if (!out.empty()) out += " ;; ";
    for (size_t i = 0; i < command.words.size(); ++i) {
      const ShellWord& word = command.words[i];
      out += (i == 0 ? "" : "|") + word.text + (word.variable ? "[$]" : "");
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
    return message_of<InputError>([&] { read_shell_text(text, "cmd.sh"); });
  };
  EXPECT_NE(message("a\nb 'c").find("cmd.sh:2: a quote (') is opened"),
            std::string::npos);
  EXPECT_NE(message("a \"c").find("cmd.sh:1: a quote (\") is opened"), std::string::npos);
  EXPECT_NE(message("a `c").find("a command (`)"), std::string::npos);
  EXPECT_NE(message("a $(c").find("$( is opened"), std::string::npos);
}

TEST(ShellWords, ReplaceVariablesThatTheTextSets) {
  EXPECT_EQ(split("A=1\nx $A ${A} \"$A b\" '$A'"), "x|1|1|1 b|$A");
  EXPECT_EQ(split("A=\"--lr 1 --bf16\"; x $A \"$A\" --y=$A"),
            "x|--lr|1|--bf16|--lr 1 --bf16|--y=--lr|1|--bf16");
  EXPECT_EQ(split("A=1\nB=$A$A\nA=2\nx $B"), "x|11");
  EXPECT_EQ(split("A=''\nx $A y"), "x|y");
  EXPECT_EQ(split("export A=3 B=4\nx ${A:-9} ${C:-9} $B"), "x|3|${C:-9}[$]|4");
  EXPECT_EQ(split("A=$N\nx $A"), "x|$N[$]");
  EXPECT_EQ(split("A=\"--a $N --b $(c d)\"\nx $A"), "x|--a|$N[$]|--b|$(c d)[$]");
  EXPECT_EQ(split("A=$(nproc --all)\nx $A"), "x|$A[$]");
  EXPECT_EQ(split("A=1 x $A"), "A=1|x|$A[$]");
  EXPECT_EQ(split("A=1; A+=2; unset B; x $A ${B-3}"), "x|12|3");
  EXPECT_EQ(split("P=/a/b.c; x ${P##*/} ${P%.*} ${#P} ${P/a/b}"),
            "x|b.c|/a/b|6|${P/a/b}[$]");
}

TEST(ShellWords, ReplaceArraysThatTheTextSets) {
  EXPECT_EQ(split("A=(\n --a 1 # why\n 'b c' \\\n --d\n)\nx ${A[@]}"), "x|--a|1|b|c|--d");
  EXPECT_EQ(split("A=('b c')\nx \"${A[@]}\""), "x|b c");
  EXPECT_EQ(split("A=(a)\nA+=(b $N)\nx ${A[*]} $A ${A[1]}"), "x|a|b|$N[$]|a|${A[1]}[$]");
  EXPECT_EQ(split("declare -a A=(a b=c)\nx ${A[@]} ${#A[@]} ${A[1]}"), "x|a|b=c|2|b=c");
  EXPECT_EQ(split("A=()\nx ${A[@]} y"), "x|y");
  EXPECT_EQ(split("A=(--b $((N * 2)))\nx ${A[@]}"), "x|--b|$((N * 2))[$]");
  EXPECT_THROW(split("A=(a\nb"), InputError);
}

TEST(ShellWords, ComputeWithNumbersThatAreKnown) {
  EXPECT_EQ(split("N=4; x $((32 * N / (2 + $N))) $((N % 3 == 1 ? -7 : 8))"), "x|21|-7");
  EXPECT_EQ(split("let N=2*3; ((N += 1)); ((N++)); x $N"), "x|8");
  EXPECT_EQ(split("N=4; x $((N / 0)) $((N << 2)) $((9223372036854775807 + N)) $((N +))"),
            "x|$((N / 0))[$]|$((N << 2))[$]|$((9223372036854775807 + N))[$]|$((N +))[$]");
  EXPECT_EQ(split("x $((Q + 1)) $((010))"), "x|$((Q + 1))[$]|$((010))[$]");
}

TEST(ShellWords, FollowTheBranchThatTheTextDecides) {
  EXPECT_EQ(split("N=2\nif [ $N -gt 1 ]; then A=b; else A=c; fi\nx $A"), "x|b");
  EXPECT_EQ(split("N=2\nif [ \"$N\" = 1 ]; then x 1\nelif [[ $N == 2* && -n $N ]]; then\n"
                  "x 2\nelse x 3; fi"),
            "x|2");
  EXPECT_EQ(split("case b in a) A=1;; b|c) A=2 ;; *) A=3;; esac; x $A"), "x|2");
  EXPECT_EQ(split("case z in a) A=1;; *) A=3\nesac; x $A"), "x|3");
  EXPECT_EQ(split("A=1; [ -z \"$A\" ] && A=2; [ $A = 1 ] && B=3; x $A $B"), "x|1|3");
  EXPECT_EQ(split("test 2 -lt 1 || A=5; ! [ a = b ] && B=6; x $A $B"), "x|5|6");
  EXPECT_EQ(split("A=1; { A=2; }; (A=3; x $A); x $A"), "x|3 ;; x|2");
  EXPECT_EQ(split("A=1; while [ $A = 2 ]; do A=3; done; x $A"), "x|1");
  EXPECT_EQ(split("f() {\n A=$1; x $# \"$@\"\n}\nA=0; f 5 'a b'; x $A"),
            "x|2|5|a b ;; x|5");
  EXPECT_EQ(split("cat <<END\nit's text\nEND\nx"), "cat ;; x");
}

TEST(ShellWords, LeaveAVariableThatAConditionMaySet) {
  const std::string unknown = "x|$A[$]";
  for (const char* text :
       {"A=1\nif y; then\n A=2\nfi\nx $A", "A=1\ny && A=2\nx $A",
        "for A in 1 2; do\nx $A\ndone", "A=1\nread A\nx $A", "A=1\nsource env.sh\nx $A",
        "A=1\nif y; then A=2; fi; x $A", "A=1\ncase $N in\n b) A=2;;\nesac\nx $A",
        "A=1\nfor i in 1 2; do A=$i; done\nx $A", "A=1\neval y\nx $A",
        "A=1\n[ -f z ] || A=2\nx $A", "A=1\nwhile y; do A+=1; done\nx $A"}) {
    const std::string made = split(text);
    EXPECT_TRUE(made.find(unknown) != std::string::npos) << text << ": " << made;
  }
  EXPECT_EQ(split("A=(a)\nif y; then\nA+=(b)\nfi\nx ${A[@]}"), "y ;; x|a|${A[@]}[$]");
  EXPECT_EQ(split("A=1\nsource venv/bin/activate\nx $A"), "x|1");
  EXPECT_EQ(split("if y; then A=1; else A=1; fi; x $A"), "y ;; x|1");
}

TEST(ShellWords, AnUnknownValueOffersThoseOfTheBranches) {
  const ShellText text = read_shell_text(
      "A=1\nif [ -v SLURM_NTASKS ]; then A=$SLURM_NTASKS; elif y; then A=3; fi\nB=$((A * "
      "2))\nx $A $B",
      "t", {.whole = true});
  const ShellWords& words = text.commands.back().words;
  const std::string choices =
      "A is $SLURM_NTASKS where [ -v SLURM_NTASKS ], 3 where y, 1 otherwise";
  EXPECT_EQ(words[1].choices, choices);
  EXPECT_EQ(words[2].choices, choices);
  EXPECT_NE(words[1].value, words[2].value);
}

TEST(ShellWords, AVariableThatAWholeScriptNeverSetsCountsAsUnset) {
  EXPECT_EQ(split("x ${A:-1} ${B+2} $C \"$D\" $((E + 1))", true), "x|1||1");
  EXPECT_EQ(
      split("if [ $A -gt 0 ]; then B=1; elif [ -z \"$1\" ]; then B=2; fi; x $B", true),
      "x|2");
  EXPECT_EQ(split(": ${A:=4}; x $A; while [ $# -gt 0 ]; do x 5; shift; done", true),
            "x|4");
  // The scheduler, the login and the shell set these variables, so that they are not
  // unset.
  EXPECT_EQ(split("x $SLURM_NTASKS $HOME $WORLD_SIZE", true),
            "x|$SLURM_NTASKS[$]|$HOME[$]|$WORLD_SIZE[$]");
  // A flag whose variable is unset keeps the variable's name as its value.
  EXPECT_EQ(split("x --lr $LR --b $MORE_ARGS", true), "x|--lr|$LR[$]|--b|$MORE_ARGS[$]");
  const ShellText text =
      read_shell_text("[ -v A ] && B=1\nB=${B:-2}\nx $B $C", "t", {.whole = true});
  EXPECT_EQ(text.commands.back().words[1].unset, std::set<std::string>({"A", "B"}));
  EXPECT_EQ(text.commands.back().unset, std::set<std::string>({"A", "B", "C"}));
}

TEST(ShellWords, ABranchThatEndsTheScriptIsNotTaken) {
  EXPECT_EQ(split("A=1; if [ -z \"$1\" ]; then A=2; exit 1; fi; x $A", true), "x|1");
  EXPECT_EQ(split("A=1; y || { A=2; exit 1; }; x $A", true), "y ;; x|1");
}

TEST(ShellWords, WhatTheSchedulerSetsMayBeSaid) {
  ShellSettings settings{.whole = true};
  settings.scheduler["SLURM_NTASKS"] = "4";
  settings.scheduler["SLURM_NNODES"] = std::nullopt;
  const ShellText text = read_shell_text(
      "[ -v SLURM_NTASKS ] && N=$((8 / SLURM_NTASKS))\nx $N ${SLURM_NNODES:-1}", "t",
      settings);
  EXPECT_EQ(text.commands.back().words[1].text, "2");
  EXPECT_EQ(text.commands.back().words[2].text, "1");
}

TEST(ShellWords, AFileThatIsReadWhereItIsThereIsSaid) {
  const ShellText text = read_shell_text(
      "A=1\nif [ -e more.sh ]; then . more.sh; fi\nx $A", "t", {.whole = true});
  EXPECT_EQ(text.commands.back().words[1].text, "1");
  EXPECT_EQ(text.remarks,
            std::vector<std::string>{
                "`. more.sh` may set other values: see whether that file is "
                "there"});
}

TEST(ShellWords, ReplaceNoMoreThanAFileHolds) {
  std::string text = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) text += "A=$A$A\n";
  EXPECT_TRUE(message_of<InputError>([&] { split(text + "x $A"); }).find("64 MiB") !=
              std::string::npos);
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "if y; then\n";
  EXPECT_TRUE(message_of<InputError>([&] { split(nested); }).find("more than 64") !=
              std::string::npos);
  std::string calls = "f() { f; f; }\nf\n";
  EXPECT_TRUE(message_of<InputError>([&] { split(calls); }).find("64 MiB") !=
              std::string::npos);
}

}  // namespace
}  // namespace longhaul::translate
