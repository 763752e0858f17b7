#include "apps/try/try_chain.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/config/load.h"
#include "longhaul/families/model_config.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

TEST(TryChain, TheRunFileIsOneForAnyDirectory) {
  for (const char* dir : {"try-book", "try-a \"b\" \\c", "try-紅樓夢"}) {
    const RunConfig config =
        parse_run_config(try_run_toml({dir, 17, false}), "run.toml").config;
    EXPECT_EQ(config.run.dir, fs::path(dir) / "run");
    EXPECT_EQ(config.run.steps, 17);
    EXPECT_EQ(config.data.train.at(0).path.entries.at(0), fs::path(dir) / "data");
    EXPECT_EQ(config.data.validation.at(0).path.entries.at(0),
              fs::path(dir) / "data-val");
    EXPECT_EQ(config.precision.compute, ComputeType::Fp32);
  }
}

TEST(TryChain, TheModelIsALlama) {
  const ModelConfig model = parse_model_config(try_model_json(512, 0, 1), "config.json");
  EXPECT_EQ(model.model_type, "llama");
  EXPECT_EQ(model.vocab_size, 512);
  EXPECT_TRUE(model.ignored_fields.empty());
}

TEST(TryChain, TheVocabularyGrowsWithTheText) {
  EXPECT_EQ(try_vocab_size(0), 512);
  EXPECT_EQ(try_vocab_size(kLeastText), 512);
  EXPECT_EQ(try_vocab_size(500'000), 1024);
  EXPECT_EQ(try_vocab_size(8'000'000), 4096);
}

TEST(TryChain, StepsFitTheTimeAndTheData) {
  // 10 s of 16 sequences a second in batches of 8.
  EXPECT_EQ(try_steps({10.0, 16.0, 100'000}), 20);
  EXPECT_EQ(try_steps({10.0, 1e6, 40}), 100) << "20 passes over 40 sequences";
  EXPECT_EQ(try_steps({0.001, 1.0, 40}), 1);
}

TEST(TryChain, WhatIsThereAlreadyStays) {
  const TestDirectory dir;
  fs::create_directories(dir / "mine");
  write_file(dir / "mine" / "thesis.txt", "years of work");
  TextSample sample;
  sample.documents = {"text"};
  sample.files = {"book.txt"};
  EXPECT_THROW(run_try_chain(sample, {dir / "mine", 10.0}), InputError);
  EXPECT_TRUE(fs::exists(dir / "mine" / "thesis.txt"));
}

}  // namespace
}  // namespace longhaul::apps
