#include "longhaul/config/count.h"

#include "tests/support/settings.h"

namespace longhaul::config {
namespace {

int64_t count(std::string_view text, bool of_length = false) {
  const CountText read = read_count(text, of_length);
  EXPECT_EQ(read.problem, "") << text;
  return read.count.value_or(-1);
}

std::string problem(std::string_view text, bool of_length = false) {
  const CountText read = read_count(text, of_length);
  EXPECT_FALSE(read.count.has_value()) << text;
  return read.problem;
}

TEST(Count, MultiplesAreExact) {
  EXPECT_EQ(count("16000"), 16000);
  EXPECT_EQ(count("1_000"), 1000);
  EXPECT_EQ(count("16k"), 16'000);
  EXPECT_EQ(count("16K"), 16'000);
  EXPECT_EQ(count("1M"), 1'000'000);
  EXPECT_EQ(count("2.5B"), 2'500'000'000);
  EXPECT_EQ(count("1.001k"), 1001);
  EXPECT_EQ(count("0.3T"), 300'000'000'000);
  EXPECT_EQ(count("1e6"), 1'000'000);
  EXPECT_EQ(count("1.5e+3"), 1500);
  EXPECT_EQ(count("1200e-2"), 12);
  EXPECT_EQ(count("16Ki"), 16'384);
  EXPECT_EQ(count("0.5Mi"), 524'288);
  EXPECT_EQ(count("3 M"), 3'000'000);
  EXPECT_EQ(count("-3"), -3);
  EXPECT_EQ(count("9223372036854775807"), INT64_MAX);
}

TEST(Count, WhatHasTwoReadingsIsRefusedWithBoth) {
  EXPECT_EQ(problem("16m"),
            "'16m' may be 16M (16,000,000) or minutes, or a thousandth; write which");
  EXPECT_EQ(problem("2b"), "'2b' may be 2B (2,000,000,000) or bytes; write which");
  EXPECT_EQ(problem("2G"),
            "'2G' may be 2B (2,000,000,000) or 2Gi (2,147,483,648); write which");
  EXPECT_EQ(problem("1,000"),
            "'1,000' may be 1000 or a number with a fraction; write it without commas");
  EXPECT_EQ(problem("8k", true),
            "'8k' may be 8,000 or 8,192 tokens; write 8000, or 8Ki for the second");
  EXPECT_EQ(problem("1M", true),
            "'1M' may be 1M (1,000,000) or 1Mi (1,048,576) tokens; write the number");
  EXPECT_EQ(count("8Ki", true), 8192);
  EXPECT_EQ(count("8192", true), 8192);
}

TEST(Count, WhatIsNoCountIsNone) {
  EXPECT_EQ(problem("1.5"), "'1.5' is no whole number of at most 64 bits");
  EXPECT_EQ(problem("0.5"), "'0.5' is no whole number of at most 64 bits");
  EXPECT_EQ(problem("1e19"), "");
  EXPECT_EQ(problem("10000000000B"),
            "'10000000000B' is no whole number of at most 64 bits");
  EXPECT_EQ(problem("16MB"), "'16MB' is a size in bytes; a count is wanted");
  EXPECT_EQ(problem("16KiB"), "'16KiB' is a size in bytes; a count is wanted");
  for (const char* text : {"", "k", "abc", "16x", "--3", ".5", "1__0", "1e"}) {
    EXPECT_EQ(problem(text), "") << text;
  }
}

TEST(Count, ARunFileAndASetTakeCounts) {
  const RunConfig c =
      accepted(
          "[checkpoint]\nevery = \"1k\"\nmilestone_every = 1e4\n[profile]\nsteps = "
          "[\"2k\", 5]\n",
          {"run.steps=2.5M", "data.seq_len=4Ki", "data.train=[{synthetic=\"10k\"}]",
           "run.seed=1e3"})
          .config;
  EXPECT_EQ(c.checkpoint.every, 1000);
  EXPECT_EQ(c.checkpoint.milestone_every, 10'000);
  EXPECT_EQ(c.profile.steps, (std::vector<int64_t>{2000, 5}));
  EXPECT_EQ(c.run.steps, 2'500'000);
  EXPECT_EQ(c.data.seq_len, 4096);
  EXPECT_EQ(c.data.train[0].synthetic, 10'000);
  EXPECT_EQ(c.run.seed, 1000);
  // The settings are the same, whatever way they are written.
  EXPECT_EQ(config_hash(accepted("", {"run.steps=1M"}).config),
            config_hash(accepted("", {"run.steps=1000000"}).config));
}

TEST(Count, ARunFileNamesTheKeyOfACountThatIsNone) {
  EXPECT_EQ(refused("", {"data.seq_len=8k"}),
            "[config] --set data.seq_len=8k: data.seq_len: '8k' may be 8,000 or 8,192 "
            "tokens; write 8000, or 8Ki for the second");
  EXPECT_EQ(refused("", {"run.steps=2T"}),
            "[config] --set run.steps=2T: run.steps = \"2T\": must be from 1 to "
            "1000000000000");
  EXPECT_EQ(refused("", {"run.steps=many"}),
            "[config] --set run.steps=many: run.steps: expected an integer, found a "
            "string (\"many\")");
  EXPECT_EQ(refused("", {"run.steps=100.0"}),
            "[config] --set run.steps=100.0: run.steps: expected an integer, found a "
            "number with a fraction or exponent (100.0)");
  EXPECT_EQ(refused("", {"run.steps=15e-1"}),
            "[config] --set run.steps=15e-1: run.steps: '1.5' is no whole number of at "
            "most 64 bits");
}

}  // namespace
}  // namespace longhaul::config
