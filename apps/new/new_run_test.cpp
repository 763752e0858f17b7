#include "apps/new/new_run.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/config/load.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"],
 "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
 "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": false})";

DataFacts store(const std::string& path, int64_t tokens) {
  DataFacts data;
  data.path = path;
  data.kind = "token store";
  data.tokens = tokens;
  return data;
}

NewRunFacts facts() {
  NewRunFacts out;
  out.machine = {"cpu", "cpu", 1, 4, int64_t{16} << 30, 2e12, 1e12};
  out.model = parse_model_config(kModel, "config.json");
  out.model_path = "models/small";
  out.has_weights = true;
  out.train = {store("data/mine", 100'000'000)};
  out.field = "input_ids";
  out.run_dir = "runs/mine";
  out.bytes_of = [](const RunConfig&) { return int64_t{1} << 30; };
  return out;
}

/// Reads the file's text with the code of `train`.
RunConfig written(const NewRunFacts& of) {
  return parse_run_config(new_run_toml(choose_new_run(of), of), "run.toml").config;
}

TEST(NewRun, TheFileSaysWhatWasChosen) {
  const NewRunFacts of = facts();
  const NewRun run = choose_new_run(of);
  EXPECT_EQ(config_hash(written(of)),
            config_hash(parse_run_config(to_toml(run.config), "chosen").config));
  EXPECT_EQ(run.warning, "");
  EXPECT_EQ(run.config.data.seq_len, 4096);
  EXPECT_EQ(run.config.batch.global_size, 4) << "16,384 tokens of a step on a CPU";
  EXPECT_EQ(run.config.run.threads, 4);
  EXPECT_EQ(run.config.precision.compute, ComputeType::Bf16);
  EXPECT_EQ(run.config.checkpoint.every_minutes, 10.0);
  EXPECT_EQ(run.config.init.weights, "models/small");
  EXPECT_EQ(run.config.run.steps, 6103);
}

TEST(NewRun, RandomWeightsHaveAHigherRateAndNoInit) {
  NewRunFacts of = facts();
  const double continued = written(of).optimizer.lr;
  of.has_weights = false;
  const RunConfig config = written(of);
  EXPECT_TRUE(config.init.weights.empty());
  EXPECT_GT(config.optimizer.lr, 5.0 * continued);
  EXPECT_HAS(new_run_toml(choose_new_run(of), of), "weights are random");
}

TEST(NewRun, Fp32WhereItIsFaster) {
  NewRunFacts of = facts();
  of.machine.bf16_rate = 0.5e12;
  EXPECT_EQ(written(of).precision.compute, ComputeType::Fp32);
}

TEST(NewRun, PathsOfAnyNameComeBackAsTheyWere) {
  NewRunFacts of = facts();
  of.model_path = "my models/\"a\" \\b # 紅";
  of.train = {store("data/it's \"mine\"", 1'000'000), store("data/тест", 3'000'000)};
  of.train[0].held_out = {"data/it's \"mine\"-val"};
  of.train[1].held_out = {"data/тест-val"};
  of.run_dir = "runs/\t";
  const RunConfig config = written(of);
  EXPECT_EQ(config.model.config, of.model_path);
  EXPECT_EQ(config.run.dir, of.run_dir);
  EXPECT_EQ(config.data.train.at(0).path.entries.at(0), of.train[0].path);
  EXPECT_EQ(config.data.train.at(0).weight, 0.25);
  EXPECT_EQ(config.data.train.at(1).weight, 0.75);
  ASSERT_EQ(config.data.validation.size(), 2u);
  EXPECT_EQ(config.data.validation[0].path.entries.at(0), of.train[0].held_out.at(0));
  EXPECT_NE(config.data.validation[0].name, config.data.validation[1].name);
}

TEST(NewRun, WeightsAreTheSharesOfSmallSourcesToo) {
  NewRunFacts of = facts();
  of.train = {store("data/large", 117'259), store("data/small", 199)};
  const RunConfig config = written(of);
  EXPECT_EQ(config.data.train.at(0).weight, 0.998);
  EXPECT_EQ(config.data.train.at(1).weight, 0.00169);
}

TEST(NewRun, EveryStoreThatWasHeldOutOfAPatternIsForValidation) {
  NewRunFacts of = facts();
  of.train[0].held_out = {"x/a-val", "y/a-val"};
  const RunConfig config = written(of);
  ASSERT_EQ(config.data.validation.size(), 2u);
  EXPECT_EQ(config.data.validation[1].name, "a-val-2");
}

TEST(NewRun, TenCheckpointsOfTheRunStayWhereItIsValidated) {
  NewRunFacts of = facts();
  for (const int64_t tokens : {50LL, 20'000LL, 1'000'000LL, 100'000'000LL}) {
    of.train = {store("data/mine", tokens)};
    const RunConfig config = written(of);
    const int64_t every = config.checkpoint.milestone_every;
    ASSERT_GE(every, 1) << tokens;
    EXPECT_EQ(every % choose_new_run(of).config.validation.every, 0) << tokens;
    EXPECT_LE(*config.run.steps / every, 19) << tokens;
  }
  EXPECT_EQ(written(of).checkpoint.milestone_every, 600) << "a tenth of 6,103 steps";
}

TEST(NewRun, EveryNumberThatWasChosenHasItsReason) {
  NewRunFacts of = facts();
  of.train[0].held_out = {"data/mine-val"};
  const std::string text = new_run_toml(choose_new_run(of), of);
  size_t found = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    const size_t value = line.find(" = ");
    if (line.starts_with("#") || value == std::string::npos || line.ends_with("["))
      continue;
    if (line.starts_with(" ") || line[value + 3] == '"') continue;
    EXPECT_NE(line.find("  # "), std::string::npos) << line;
    ++found;
  }
  EXPECT_GT(found, 10u);
  EXPECT_HAS(text, "kind = \"cosine\"               # ");
  EXPECT_HAS(text, "= 600         # steps: these checkpoints stay, to go back to; 10 of");
}

TEST(NewRun, AConfigurationThatWasNamedAloneIsSaidToBeIt) {
  NewRunFacts of = facts();
  of.has_weights = false;
  of.model_path = "models/small/config.json";
  EXPECT_HAS(new_run_toml(choose_new_run(of), of), "a configuration alone was named");
}

TEST(NewRun, ShortDataMakesShortSequencesAndSmallBatches) {
  NewRunFacts of = facts();
  of.train = {store("data/mine", 20'000)};
  const RunConfig config = written(of);
  EXPECT_EQ(config.data.seq_len, 256) << "78 sequences";
  EXPECT_EQ(config.batch.global_size, 1);
  of.train = {store("data/mine", 50)};
  EXPECT_EQ(written(of).data.seq_len, 128);
  EXPECT_EQ(written(of).run.steps, 1);
}

TEST(NewRun, DataOfOneLengthDecidesIt) {
  NewRunFacts of = facts();
  of.train[0].fixed_length = 100;
  of.train[0].path = "data/a\nb";
  EXPECT_EQ(written(of).data.seq_len, 100) << "a comment that names it stays a comment";
  of.train[0].path = "data/mine";
  of.train.push_back(store("data/other", 1'000'000));
  of.train[1].fixed_length = 200;
  EXPECT_HAS(message_of<ConfigError>([&] { (void)choose_new_run(of); }),
             "data/mine has sequences of 100 tokens and data/other of 200");
}

TEST(NewRun, WhatDoesNotFitIsRecomputedThenShardedThenShortened) {
  NewRunFacts of = facts();
  of.machine.device = "cuda";
  of.machine.ranks = 8;
  const int64_t memory = of.machine.memory_bytes;
  of.bytes_of = [memory](const RunConfig& c) {
    return c.memory.recompute == RecomputeKind::Full ? memory / 4 : memory;
  };
  EXPECT_EQ(written(of).memory.recompute, RecomputeKind::Full);
  EXPECT_EQ(written(of).parallel.zero, 1);
  of.bytes_of = [memory](const RunConfig& c) {
    return c.parallel.zero == 3 ? memory / 4 : memory;
  };
  EXPECT_EQ(written(of).parallel.zero, 3);
  EXPECT_EQ(written(of).memory.recompute, RecomputeKind::None);
  of.bytes_of = [memory](const RunConfig& c) {
    return c.data.seq_len <= 1024 ? memory / 4 : memory;
  };
  EXPECT_EQ(written(of).data.seq_len, 1024);
  of.bytes_of = [memory](const RunConfig&) { return 2 * memory; };
  const NewRun elsewhere = choose_new_run(of);
  EXPECT_HAS(elsewhere.warning, "needs about 34.4 GB on each rank");
  EXPECT_EQ(elsewhere.config.data.seq_len, 4096) << "for other machines nothing is saved";
  EXPECT_EQ(elsewhere.config.memory.recompute, RecomputeKind::None);
  EXPECT_EQ(elsewhere.config.parallel.zero, 1);
}

TEST(NewRun, TheBatchDividesOverTheDevices) {
  NewRunFacts of = facts();
  of.machine.device = "cuda";
  of.machine.ranks = 6;
  const int64_t memory = of.machine.memory_bytes;
  of.bytes_of = [memory](const RunConfig& c) { return memory / 8 * c.batch.micro_size; };
  const RunConfig config = written(of);
  EXPECT_EQ(config.batch.micro_size, 4) << "four times an eighth is half; eight is all";
  EXPECT_EQ(derive_batch(config, 6).dp, 6);
}

NewRunFacts facts_of_chats(int64_t tokens, int64_t longest) {
  NewRunFacts out = facts();
  out.train = {store("data/chats", tokens)};
  out.train[0].records = "chats";
  out.train[0].longest = longest;
  return out;
}

TEST(NewRun, ChatsStayWholeInRowsThatHoldTheLongest) {
  NewRunFacts of = facts_of_chats(10'000'000, 900);
  of.train[0].held_out = {"data/chats-val"};
  const NewRun run = choose_new_run(of);
  EXPECT_EQ(config_hash(written(of)),
            config_hash(parse_run_config(to_toml(run.config), "chosen").config));
  EXPECT_EQ(run.config.data.pack, PackKind::Whole);
  EXPECT_EQ(run.config.data.seq_len, 4096) << "the model's positions";
  EXPECT_EQ(run.config.run.epochs, 3.0);
  EXPECT_FALSE(run.config.run.steps);
  EXPECT_EQ(run.config.optimizer.weight_decay, 0.0);
  EXPECT_EQ(run.config.optimizer.lr, 1e-4);
  const std::string text = new_run_toml(run, of);
  EXPECT_HAS(text, "# Fine-tuning on chats of models/small, ");
  EXPECT_HAS(text, "# about 1,831 steps; fewer passes where the loss");
  EXPECT_EQ(text.find("not built yet"), text.npos);

  EXPECT_EQ(written(facts_of_chats(100'000, 900)).data.seq_len, 1024) << "98 rows";
  EXPECT_EQ(written(facts_of_chats(1'000, 100)).data.seq_len, 128);
  EXPECT_EQ(written(facts_of_chats(50, 50)).batch.global_size, 1);
  EXPECT_HAS(new_run_toml(choose_new_run(facts_of_chats(100'000, 9'000)),
                          facts_of_chats(100'000, 9'000)),
             "the longest seen has 9,000 tokens: what is longer than a row is left out");
}

TEST(NewRun, AnAcceleratorTakesAboutAHundredChatsAStep) {
  NewRunFacts of = facts_of_chats(1'000'000'000, 900);
  of.machine.device = "cuda";
  of.machine.ranks = 8;
  EXPECT_EQ(written(of).batch.global_size, 32) << "131,072 tokens in rows of 4,096";
}

TEST(NewRun, RowsOfChatsAreShortenedForMemoryNoMoreThanTheLongestAllows) {
  NewRunFacts of = facts_of_chats(10'000'000, 900);
  const int64_t memory = of.machine.memory_bytes;
  of.bytes_of = [memory](const RunConfig& c) {
    return c.data.seq_len <= 1024 ? memory / 4 : memory;
  };
  EXPECT_EQ(written(of).data.seq_len, 1024);
  of.train[0].longest = 1100;
  EXPECT_EQ(written(of).data.seq_len, 4096);
  EXPECT_HAS(choose_new_run(of).warning, "of memory are free here");
}

TEST(NewRun, TheCommandThatBuildsTheChatsStandsInTheFile) {
  NewRunFacts of = facts_of_chats(100'000, 900);
  of.train[0].exact = false;
  of.train[0].kind = "chats, of which the store is not built yet";
  of.train[0].build = "longhaul data build 'a\nb' --chat";
  of.train[0].held_out = {"data/chats-val"};
  const std::string text = new_run_toml(choose_new_run(of), of);
  EXPECT_HAS(text,
             "so that their tokens are estimated. Build them:\n"
             "#   longhaul data build 'a?b' --chat\n");
  EXPECT_HAS(text, "# chats, of which the store is not built yet: about 100,000 tokens");
  EXPECT_EQ(written(of).data.validation.at(0).path.entries.at(0), "data/chats-val");
}

/// Expects that the file says what was chosen.
void expect_written(const NewRunFacts& of) {
  EXPECT_EQ(
      config_hash(written(of)),
      config_hash(parse_run_config(to_toml(choose_new_run(of).config), "x").config));
}

TEST(NewRun, AnAdapterHasASectionAndARateOfItsOwn) {
  NewRunFacts of = facts_of_chats(10'000'000, 900);
  of.train[0].held_out = {"data/chats-val"};
  of.lora = true;
  expect_written(of);
  const RunConfig config = written(of);
  EXPECT_EQ(config.adapter.kind, AdapterKind::Lora);
  EXPECT_EQ(config.adapter.rank, 16);
  EXPECT_EQ(config.adapter.alpha, 32.0);
  EXPECT_EQ(config.optimizer.lr, 2e-4);
  EXPECT_HAS(new_run_toml(choose_new_run(of), of),
             "Fine-tuning on chats with an adapter");
  of.lora = false;
  EXPECT_FALSE(written(of).adapter.kind);
}

TEST(NewRun, PairsAreReadOnceForALossOfPreferencesAtALowRate) {
  NewRunFacts of = facts_of_chats(10'000'000, 900);
  of.train[0].records = "pairs";
  of.train[0].held_out = {"data/chats-val"};
  expect_written(of);
  const RunConfig config = written(of);
  EXPECT_EQ(config.preference.loss, PreferenceLoss::Sigmoid);
  EXPECT_EQ(config.run.epochs, 1.0);
  EXPECT_EQ(config.optimizer.lr, 1e-6);
  EXPECT_EQ(config.schedule.warmup_fraction, 0.1);
  EXPECT_FALSE(config.adapter.kind);
  of.lora = true;
  expect_written(of);
  EXPECT_EQ(written(of).optimizer.lr, 5e-6);
  EXPECT_EQ(written(of).adapter.kind, AdapterKind::Lora);
}

}  // namespace
}  // namespace longhaul::apps
