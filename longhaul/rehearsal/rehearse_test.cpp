#include "longhaul/rehearsal/rehearse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "longhaul/config/load.h"
#include "longhaul/rehearsal/device.h"

namespace longhaul::rehearsal {
namespace {

constexpr const char* kRun = R"(
[run]
dir = "run"
steps = 4
[model]
config = "model"
[data]
seq_len = 64
train = [{ synthetic = 64 }]
[batch]
global_size = 8
micro_size = 1
[optimizer]
lr = 1e-3
[schedule]
kind = "constant"
)";

/// Returns the config.json of a small dense model, or of a mixture of 8 experts.
std::string model_json(bool mixture) {
  const std::string shape =
      R"("vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16")";
  if (!mixture) {
    return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "intermediate_size": 128, )" +
           shape + "}";
  }
  return R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
      "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2,
      "sliding_window": null, )" +
         shape + "}";
}

class Rehearse : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_device(); }

  static Rehearsal played(int64_t ranks, const std::vector<std::string>& sets,
                          bool mixture = false) {
    const RunConfig config = parse_run_config(kRun, "run.toml", sets).config;
    const ModelConfig model = parse_model_config(model_json(mixture), "config.json");
    return play_ranks({.config = config, .model = model, .ranks = ranks, .threads = 2});
  }
  static std::string problem(const Rehearsal& of) {
    return find_mismatch(of.ranks, of.groups).value_or("");
  }
};

TEST_F(Rehearse, EveryRankIsPlayedOrIsLikeOneThatIs) {
  const Rehearsal one = played(8, {"parallel.tp=2", "parallel.pp=2"});
  ASSERT_EQ(one.ranks.size(), 8U);
  int64_t ranks = 0;
  for (const PlayedRank& rank : one.played) {
    EXPECT_GT(rank.peak_bytes, rank.state_bytes);
    EXPECT_EQ(rank.script.get(), one.ranks[static_cast<size_t>(rank.rank)].script);
    ranks += rank.ranks;
  }
  EXPECT_EQ(ranks, 8);
  EXPECT_LT(one.played.size(), 8U);  // the replicas of a stage are alike
  EXPECT_EQ(problem(one), "");
}

TEST_F(Rehearse, LayoutsOfEveryKindComeToTheirEnd) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"parallel.zero=3", "parallel.cp=2"},
           {"parallel.zero=2", "parallel.pp=2", "memory.recompute=\"full\""},
           {"parallel.pp=4", "parallel.pipeline=\"zb-h1\""},
           {"parallel.pp=2", "parallel.pipeline=\"interleaved\"",
            "parallel.virtual_stages=2"},
           {"optimizer.kind=\"lamb\"", "parallel.tp=2"}}) {
    EXPECT_EQ(problem(played(4, sets)), "") << sets.front();
  }
  EXPECT_EQ(problem(played(8, {"parallel.ep=4", "parallel.tp=2"}, true)), "");
}

TEST_F(Rehearse, MoreShardsHoldLessAndMoreLayersOfARankMore) {
  const auto peak = [](const Rehearsal& of) {
    return std::ranges::max_element(of.played, {}, &PlayedRank::peak_bytes)->peak_bytes;
  };
  const int64_t whole = peak(played(2, {"parallel.zero=0"}));
  EXPECT_LT(peak(played(2, {"parallel.zero=1"})), whole);
  EXPECT_LT(peak(played(2, {"parallel.pp=2"})), whole);
  EXPECT_GT(peak(played(2, {"batch.micro_size=2"})), peak(played(2, {})));
}

/// Swaps two neighbouring operations of one rank, which differ and are of one group and
/// one lane, and returns the script.
Script swapped(Script script, Lane lane) {
  for (size_t i = 0; i + 1 < script.operations.size(); ++i) {
    Operation &a = script.operations[i], &b = script.operations[i + 1];
    if (a.lane != lane || b.lane != lane || a.group != b.group) continue;
    if (a.verb == b.verb && a.bytes == b.bytes) continue;
    std::swap(a, b);
    return script;
  }
  ADD_FAILURE() << "nothing to swap";
  return script;
}

TEST_F(Rehearse, TwoCollectivesSwappedOnOneRankAreNamed) {
  Rehearsal run = played(4, {"parallel.tp=2", "parallel.pp=2"});
  const Script wrong = swapped(*run.ranks[3].script, Lane::Collectives);
  run.ranks[3].script = &wrong;
  const std::string told = problem(run);
  EXPECT_NE(told.find("operations that do not match: rank 2 (pp 1 dp 0 cp 0 tp 0) calls"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("but rank 3 (pp 1 dp 0 cp 0 tp 1) calls"), std::string::npos);
  EXPECT_NE(told.find("of 'tp'"), std::string::npos);
  EXPECT_NE(told.find("step 1"), std::string::npos);
}

TEST_F(Rehearse, MicroBatchesBeyondAFullPipelineHoldNoMoreMemory) {
  for (const char* kind : {"\"1f1b\"", "\"zb-h1\"", "\"gpipe\""}) {
    const std::vector<std::string> sets = {"parallel.pp=2", "batch.global_size=32",
                                           std::string("parallel.pipeline=") + kind};
    const RunConfig config = parse_run_config(kRun, "run.toml", sets).config;
    const ModelConfig model = parse_model_config(model_json(false), "config.json");
    const int64_t enough = enough_micro_batches(
        config, layout::describe_layout(config, model.description, 2));
    const Rehearsal all = play_ranks({.config = config, .model = model, .ranks = 2});
    const Rehearsal few = play_ranks(
        {.config = config, .model = model, .ranks = 2, .most_micro_batches = enough});
    EXPECT_EQ(few.micro_batches,
              config.parallel.pipeline == PipelineKind::GPipe ? 32 : 4);
    EXPECT_EQ(all.micro_batches, 32);
    ASSERT_EQ(few.played.size(), all.played.size());
    for (size_t i = 0; i < few.played.size(); ++i) {
      EXPECT_EQ(few.played[i].peak_bytes, all.played[i].peak_bytes) << kind;
    }
  }
}

}  // namespace
}  // namespace longhaul::rehearsal
