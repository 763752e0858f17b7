#include "longhaul/layout/rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "longhaul/families/decoder.h"
#include "longhaul/families/describe.h"
#include "longhaul/layout/layout_description.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/settings.h"

namespace longhaul::layout {
namespace {

DecoderSettings ruled_settings() {
  DecoderSettings s;
  s.hidden_size = 64;
  s.intermediate_size = 12;
  s.num_hidden_layers = 6;
  s.num_attention_heads = 8;
  s.num_key_value_heads = 2;
  s.head_dim = 8;
  s.rms_norm_eps = 1e-5;
  return s;
}

ModelConfig ruled_model(const DecoderSettings& settings = ruled_settings(),
                        int64_t vocabulary = 1000, int64_t positions = 4096) {
  ModelConfig model = make_llama(settings, vocabulary, positions);
  model.source_path = "models/llama/config.json";
  return model;
}

ModelConfig with_experts() {
  return load_model_config(source_dir() / "tests/fixtures/configs/qwen3-30b-a3b.json");
}

RunConfig run_with(const std::vector<std::string>& sets) {
  return accepted("", sets).config;
}

using Rule = config::LayoutRule;
using Broken = std::vector<BrokenRule>;

std::string said(const RunConfig& config, const ModelLimits& limits,
                 const BrokenRule& rule) {
  return message_of<ConfigError>(
      [&] { refusal_of(rule, config, limits, "models/llama/config.json").fail(config); });
}

TEST(LayoutRules, GiveTheNumbersOfWhatDoesNotFit) {
  const ModelConfig model = ruled_model();
  const ModelLimits limits(model.description);
  const auto broken = [&](const std::vector<std::string>& sets, int64_t ranks) {
    return broken_on_ranks(run_with(sets), limits, ranks);
  };
  EXPECT_EQ(broken({"parallel.tp=2", "parallel.pp=2"}, 8), Broken());
  EXPECT_EQ(broken({"parallel.tp=10", "parallel.sequence=false"}, 10),
            (Broken{{Rule::QueryHeads, 10, 8}}));
  EXPECT_EQ(broken({"parallel.tp=13", "parallel.sequence=false"}, 13),
            (Broken{{Rule::QueryHeads, 13, 8}, {Rule::Narrow, 12, 13}}));
  EXPECT_EQ(broken({"parallel.pp=8"}, 8), (Broken{{Rule::Layers, 6, 8}}));
  EXPECT_EQ(broken({"parallel.pp=3", "parallel.pipeline=interleaved",
                    "parallel.virtual_stages=2", "batch.global_size=8"},
                   3),
            (Broken{{Rule::InterleavedBatches, 8, 3}}));
  EXPECT_EQ(broken({"parallel.zero=1", "parallel.shard_group=3"}, 8),
            (Broken{{Rule::ShardGroup, 8, 3}}));
  EXPECT_EQ(broken({"parallel.tp=4"}, 6), (Broken{{Rule::Replicas, 6, 4}}));
  EXPECT_EQ(broken({"parallel.ep=3"}, 5), (Broken{{Rule::ExpertGroups, 5, 3},
                                                  {Rule::Batch, 8, 5},
                                                  {Rule::ExpertShards, 3, 5}}));
  const Broken room = broken({"parallel.zero=3", "memory.gathered_gb=1e-6"}, 4);
  ASSERT_EQ(room.size(), 1U);
  EXPECT_EQ(room[0], (BrokenRule{Rule::Gathered, 1000, room[0].limit, 0}));
  EXPECT_GT(room[0].limit, 1000);
}

TEST(LayoutRules, PartitionsOfAPersonAreCounted) {
  const ModelConfig model = ruled_model();
  const ModelLimits limits(model.description);
  const auto broken = [&](const std::string& counts) {
    return broken_on_ranks(run_with({"parallel.pp=3", "batch.global_size=6",
                                     "parallel.partition=" + counts}),
                           limits, 3);
  };
  EXPECT_EQ(broken("[1,4,1]"), Broken());
  EXPECT_EQ(broken("[2,4]"), (Broken{{Rule::PartitionLength, 2, 3}}));
  EXPECT_EQ(broken("[1,7,1]"), (Broken{{Rule::PartitionCount, 7, 6}}));
  EXPECT_EQ(said(run_with({}), limits, broken("[1,4,3]").at(0)),
            "[pipeline] parallel.partition: the layer counts add up to 8, but the model "
            "has 6 layers; change them by -2");
}

TEST(LayoutRules, ASearchSeesAllThatIsBrokenAtOnce) {
  const ModelConfig model = ruled_model();
  RunConfig config = run_with({});
  config.parallel.tp = 16;
  config.parallel.pp = 8;
  config.parallel.cp = 3;
  config.parallel.ep = 2;
  const ModelLimits limits(model.description);
  EXPECT_EQ(broken_without_ranks(config, limits), (Broken{{Rule::Chunks, 128, 6},
                                                          {Rule::Positions, 42, 16},
                                                          {Rule::NoExperts, 2, 1}}));
  EXPECT_EQ(broken_on_ranks(config, limits, 16 * 8 * 3 * 3),
            (Broken{{Rule::ExpertGroups, 9, 2},
                    {Rule::Batch, 8, 3},
                    {Rule::ExpertShards, 2, 9},
                    {Rule::Layers, 6, 8},
                    {Rule::QueryHeads, 16, 8},
                    {Rule::Narrow, 12, 16}}));
}

TEST(LayoutRules, ExpertsLieEvenlyOnTheirRanks) {
  const ModelConfig model = with_experts();
  const ModelLimits limits(model.description);
  EXPECT_EQ(limits.experts, std::vector<int64_t>{128});
  EXPECT_EQ(broken_without_ranks(run_with({"parallel.ep=3"}), limits),
            (Broken{{Rule::Experts, 128, 3}}));
  EXPECT_EQ(broken_without_ranks(run_with({"parallel.ep=4"}), limits), Broken());
  EXPECT_EQ(broken_without_ranks(run_with({"experts.balance=pooled"}), limits),
            (Broken{{Rule::Pooled}}));
  EXPECT_EQ(broken_on_ranks(run_with({"parallel.ep=4", "parallel.shard_group=6",
                                      "batch.global_size=12"}),
                            limits, 12),
            (Broken{{Rule::ExpertShards, 4, 6}}));
  const ModelConfig dense = ruled_model();
  const RunConfig asked = run_with({"parallel.ep=2"});
  EXPECT_EQ(message_of<ConfigError>([&] { check_against_model(asked, dense); }),
            "[config] --set parallel.ep=2: parallel.ep = 2 spreads experts over ranks, "
            "and the model of models/llama/config.json has none; set parallel.ep = 1");
}

TEST(LayoutRules, PooledBalanceNeedsEquallyManyExpertsInEachLayer) {
  ModelConfig model = with_experts();
  model.description.units.at(3).forward.routes = 64;
  const ModelLimits limits(model.description);
  const RunConfig pooled =
      run_with({"experts.balance=pooled", "batch.global_size=1", "batch.micro_size=1"});
  const Broken broken = broken_without_ranks(pooled, limits);
  EXPECT_EQ(broken, (Broken{{Rule::PooledExperts, 64, 128}}));
  EXPECT_EQ(
      said(pooled, limits, broken.at(0)),
      "[config] --set experts.balance=pooled: experts.balance = \"pooled\" adds up "
      "the loads of all layers expert by expert, and a layer of "
      "models/llama/config.json has 64 experts, another one 128; use \"sequence\" or "
      "\"global\"");
  for (const char* other : {"sequence", "global"}) {
    const RunConfig each = run_with({std::string("experts.balance=") + other});
    EXPECT_EQ(broken_without_ranks(each, limits), Broken()) << other;
  }
}

TEST(LayoutRules, SizesWhoseBytesCannotBeCountedAreRefused) {
  const RunConfig config = run_with({});
  check_against_model(config, ruled_model());
  DecoderSettings s = ruled_settings();
  s.hidden_size = s.intermediate_size = 1 << 22;
  s.num_hidden_layers = 1 << 12;
  EXPECT_EQ(message_of<ConfigError>(
                [&] { check_against_model(config, ruled_model(s, 1 << 30)); }),
            "[config] run.toml:5:10: models/llama/config.json: a model of 2.25e+17 "
            "parameters, whose bytes cannot be counted; correct its sizes");
  s.hidden_size = 1 << 14;
  s.intermediate_size = 1 << 16;
  s.num_hidden_layers = 128;
  const ModelConfig large = ruled_model(s, 1 << 17);
  check_against_model(config, large);
  const RunConfig often = run_with({"batch.global_size=70000000", "data.seq_len=128"});
  EXPECT_NE(message_of<ConfigError>([&] {
              check_against_model(often, large);
            }).find("move more bytes in a step than can be counted"),
            std::string::npos);
}

TEST(LayoutRules, SequencesLongerThanTheModelsPositionsAreRefused) {
  const RunConfig config = run_with({});
  check_against_model(config, ruled_model(ruled_settings(), 1000, 128));
  EXPECT_EQ(
      message_of<ConfigError>(
          [&] { check_against_model(config, ruled_model(ruled_settings(), 1000, 127)); }),
      "[config] run.toml:7:11: data.seq_len = 128 is above max_position_embeddings = "
      "127 of models/llama/config.json; shorten it, or set "
      "model.override.max_position_embeddings");
}

/// Returns a model whose second layer has half as many heads.
ModelDescription with_unlike_heads() {
  families::Network network = ruled_model().network;
  families::Attention& attention = families::layers_of(network).at(1).attention;
  for (families::Linear* p : {&attention.query, &attention.key, &attention.value}) {
    p->out /= 2;
  }
  return families::describe(network);
}

TEST(LayoutRules, LayersWithDifferentHeadsShareKeyHeadsInOneGroup) {
  const ModelDescription model = with_unlike_heads();
  check_description(model);
  const ModelLimits limits(model);
  EXPECT_EQ(limits.heads, (std::vector<format::Heads>{{4, 1}, {8, 2}}));
  const auto broken = [&](int64_t tp) {
    return broken_on_ranks(run_with({fmt::format("parallel.tp={}", tp)}), limits, tp);
  };
  EXPECT_EQ(broken(2), Broken());
  EXPECT_EQ(broken(4), (Broken{{Rule::KeyHeads, 1, 2}}));
  EXPECT_EQ(broken(8), (Broken{{Rule::QueryHeads, 8, 4}, {Rule::KeyHeads, 1, 2}}));
  EXPECT_EQ(said(run_with({"parallel.tp=4"}), limits, broken(4).at(0)),
            "[parallel] parallel.tp = 4 is more than the 1 key heads of one layer and "
            "the 2 of another, whose key heads different groups of ranks would hold "
            "together; use at most 2");
  const LayoutDescription layout = describe_layout(run_with({"parallel.tp=2"}), model, 2);
  EXPECT_EQ(layout.shared_key_heads, 1);
  EXPECT_EQ(layout.rank_groups().members(GroupKind::KeyReplicas, 0),
            (std::vector<int>{0, 1}));
  std::map<std::string, PlacedParameter> placed;
  for (const PlacedParameter& p : layout.parameters(model, 1)) placed[p.slice.name] = p;
  EXPECT_EQ(placed.at("model.layers.0.self_attn.k_proj.weight").sum_group, kNoSum);
  EXPECT_EQ(placed.at("model.layers.1.self_attn.k_proj.weight").sum_group, kKeySum);
}

/// Calls `ask` with every combination of some degrees of parallelism.
template <typename Ask>
void for_layouts(RunConfig config, Ask ask) {
  for (const int64_t tp : {1, 2, 4, 8, 16}) {
    for (const int64_t pp : {1, 2, 4, 5, 8}) {
      for (const int64_t cp : {1, 2, 3}) {
        for (const int64_t micro : {1, 2, 8}) {
          for (const int64_t zero : {0, 1, 3}) {
            config.parallel.tp = tp;
            config.parallel.pp = pp;
            config.parallel.cp = cp;
            config.parallel.zero = zero;
            config.batch.micro_size = micro;
            ask(config);
          }
        }
      }
    }
  }
}

TEST(LayoutRules, WhatBreaksNoneIsALayout) {
  const ModelConfig model = ruled_model();
  const ModelLimits limits(model.description);
  int fits = 0, asked = 0;
  for_layouts(run_with({"batch.global_size=64"}), [&](const RunConfig& config) {
    ++asked;
    const bool settings = broken_without_ranks(config, limits).empty();
    const auto broken = broken_on_ranks(config, limits, 32);
    if (!broken.empty()) {
      EXPECT_EQ(message_of<ConfigError>(
                    [&] { describe_layout(config, model.description, 32); }),
                said(config, limits, broken.front()));
    } else if (settings) {
      ++fits;
      const LayoutDescription layout = describe_layout(config, model.description, 32);
      for (int rank = 0; rank < 32; ++rank) layout.parameters(model.description, rank);
    }
  });
  EXPECT_GT(fits, 50);
  EXPECT_LT(fits, asked / 2);
}

TEST(LayoutRules, AHundredThousandLayoutsTakeLittleTime) {
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs/llama3-70b.json")
          .description;
  const ModelLimits limits(model);
  const RunConfig config = run_with({"batch.global_size=1024", "data.seq_len=8192"});
  int64_t asked = 0, fits = 0;
  const system::Stopwatch watch;
  while (asked < 100'000) {
    for_layouts(config, [&](const RunConfig& one) {
      ++asked;
      fits += broken_without_ranks(one, limits).empty() &&
              broken_on_ranks(one, limits, 512).empty();
    });
  }
  const double each = watch.seconds() / static_cast<double>(asked);
  EXPECT_GT(fits, 0);
  EXPECT_LT(each, 20e-6);  // a third of a microsecond on an idle machine
  RecordProperty("nanoseconds", static_cast<int>(1e9 * each));
  fmt::print("{} layouts, {} fit, {:.3g} us each\n", asked, fits, 1e6 * each);
}

}  // namespace
}  // namespace longhaul::layout
