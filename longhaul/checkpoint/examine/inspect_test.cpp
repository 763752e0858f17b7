#include "longhaul/checkpoint/examine/inspect.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::TempDir;
using testing::write_file;

void save_run(const fs::path& run, int64_t step) {
  testing::run_ranks(2, [&](comm::Communicator& world) {
    testing::save_now(run / "checkpoints", step, 1,
                      testing::flat_share(world.rank(), 2).tensors, world, {},
                      testing::side_files());
  });
}

std::string text_of(const Inspection& inspection) {
  std::string text;
  for (const std::string& line : inspection.lines) text += line + "\n";
  return text;
}

TEST(Inspect, ARunAndItsCheckpointsSayStepSizeAndKinds) {
  const TempDir dir;
  save_run(dir / "run", 4);
  save_run(dir / "run", 8);
  const Inspection run = inspect_path(dir / "run");
  EXPECT_EQ(run.kind, "run");
  EXPECT_TRUE(run.complete);
  const std::string text = text_of(run);
  EXPECT_HAS(text, "2 checkpoints, newest valid: step 8");
  EXPECT_HAS(text, "attempt 1, 2 ranks, build 0.1.0");
  EXPECT_HAS(text, "exp_avg_sq: 3 tensors, 181 parameters, F32, 724 B");
  EXPECT_HAS(text, "config: llama, 1 layer,");
  const Inspection step = inspect_path(dir / "run/checkpoints/step_00000004");
  EXPECT_EQ(step.kind, "checkpoint");
  EXPECT_EQ(step.json.at("step"), 4);
  EXPECT_EQ(step.json.at("weight").at("parameters"), 181);
}

TEST(Inspect, AWriteThatNeverEndedIsNotComplete) {
  const TempDir dir;
  save_run(dir / "run", 4);
  save_run(dir / "run", 8);
  fs::remove(dir / "run/checkpoints/step_00000008/manifest.json");
  const Inspection run = inspect_path(dir / "run");
  EXPECT_FALSE(run.complete);
  EXPECT_HAS(text_of(run), "newest valid: step 4");
  EXPECT_HAS(text_of(run), "its writing never ended");
  const Inspection step = inspect_path(dir / "run/checkpoints/step_00000008");
  EXPECT_FALSE(step.complete);
}

TEST(Inspect, AModelDirectoryNamesWhatIsMissing) {
  const TempDir dir;
  testing::write_model(dir / "one");
  ExportOptions options;
  options.shard_bytes = 3000;
  export_hf(*WeightsSource::open(dir / "one"), dir / "hf", options);
  const Inspection whole = inspect_path(dir / "hf");
  EXPECT_EQ(whole.kind, "hf_directory");
  EXPECT_TRUE(whole.complete) << text_of(whole);
  EXPECT_HAS(text_of(whole), "12 tensors, 808 parameters, F32");
  EXPECT_HAS(text_of(whole), "LICENSE, generation_config.json, tokenizer.json");
  fs::remove(dir / "hf/model-00002-of-00002.safetensors");
  fs::remove(dir / "hf/config.json");
  const Inspection part = inspect_path(dir / "hf");
  EXPECT_FALSE(part.complete);
  EXPECT_HAS(text_of(part), "shards: 1 of 2 present");
  EXPECT_HAS(text_of(part), "missing: model-00002-of-00002.safetensors");
  EXPECT_HAS(text_of(part), "config.json is missing");
  EXPECT_EQ(part.json.at("problems").size(), 2U);
}

TEST(Inspect, TheParametersOfExpertsThatATokenUsesAreTold) {
  const TempDir dir;
  testing::write_model(dir / "hf");
  EXPECT_EQ(text_of(inspect_path(dir / "hf")).find("experts:"), std::string::npos);
  fs::remove(dir / "hf/config.json");
  write_file(dir / "hf/config.json", R"({
    "model_type": "mixtral", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 3,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "num_local_experts": 5, "num_experts_per_tok": 2, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": null})");
  const Inspection found = inspect_path(dir / "hf");
  // Both tables have 40 parameters, and the last norm 4. Each of the 2 blocks has 2
  // norms, 16 + 8 + 8 + 16 for attention, 20 for the router and 5 experts of 36.
  EXPECT_HAS(text_of(found), "experts: 596 parameters, 380 of them active for a token");
  EXPECT_EQ(found.json.at("config").at("active_parameters"), 380);
}

TEST(Inspect, SingleFilesAreNamedOrRefused) {
  const TempDir dir;
  testing::write_safetensors(dir / "a.safetensors", {"x", "y"}, {2, 2}, 0);
  EXPECT_HAS(text_of(inspect_path(dir / "a.safetensors")),
             "2 tensors, 8 parameters, F32");
  write_file(dir / "tokenizer.json",
             R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}})");
  EXPECT_HAS(text_of(inspect_path(dir / "tokenizer.json")), "BPE, 2 tokens, 1 merge,");
  for (const auto& [name, advice] :
       {std::pair("notes.txt", "data build"), std::pair("run.toml", "longhaul config "),
        std::pair("old.pt", "longhaul import")}) {
    write_file(dir / name, "hello");
    EXPECT_HAS(message_of<InputError>([&] { inspect_path(dir / name); }), advice);
  }
  EXPECT_THROW(inspect_path(dir / "absent"), InputError);
  fs::create_directory(dir / "empty");
  EXPECT_HAS(message_of<InputError>([&] { inspect_path(dir / "empty"); }),
             "not a checkpoint");
}

TEST(Inspect, ATokenizersDirectoryIsNoIncompleteModel) {
  const TempDir dir;
  fs::create_directory(dir / "bpe");
  write_file(dir / "bpe/tokenizer.json",
             R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}})");
  write_file(dir / "bpe/tokenizer_config.json", "{}");
  const Inspection found = inspect_path(dir / "bpe");
  EXPECT_EQ(found.kind, "tokenizer");
  EXPECT_TRUE(found.complete) << text_of(found);
  EXPECT_HAS(text_of(found), "BPE, 2 tokens");
  EXPECT_HAS(text_of(found),
             "a tokenizer's directory, without a model; files: tokenizer.json, "
             "tokenizer_config.json");
  fs::create_directory(dir / "piece");
  write_file(dir / "piece/tokenizer.model", "x");
  EXPECT_HAS(text_of(inspect_path(dir / "piece")), "piece/tokenizer.model");
  EXPECT_FALSE(inspect_path(dir / "piece").complete);
}

TEST(Inspect, ATokenizersDirectoryWhoseTokenizerIsBrokenIsNotComplete) {
  const TempDir dir;
  fs::create_directory(dir / "link");
  fs::create_symlink("../blobs/1f", dir / "link/tokenizer.json");
  fs::create_directory(dir / "cut");
  write_file(dir / "cut/tokenizer.json", R"({"model":{"type":"BPE")");
  for (const auto& [name, why] : {std::pair("link", "where nothing is"),
                                  std::pair("cut", "not valid JSON at byte")}) {
    const Inspection found = inspect_path(dir / name);
    EXPECT_EQ(found.kind, "tokenizer");
    EXPECT_FALSE(found.complete) << name;
    EXPECT_HAS(text_of(found), why);
    EXPECT_FALSE(found.json.contains("tokenizer_problem")) << name;
  }
}

}  // namespace
}  // namespace longhaul::checkpoint
