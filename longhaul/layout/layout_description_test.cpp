#include "longhaul/layout/layout_description.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "longhaul/families/decoder.h"
#include "longhaul/families/model_config.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/settings.h"

namespace longhaul::layout {
namespace {

ModelDescription small(bool tied, int64_t layers = 6) {
  DecoderSettings s;
  s.hidden_size = 64;
  s.intermediate_size = 96;
  s.num_hidden_layers = layers;
  s.num_attention_heads = 8;
  s.num_key_value_heads = 2;
  s.head_dim = 8;
  s.rms_norm_eps = 1e-5;
  s.tie_word_embeddings = tied;
  return make_llama(s, 1000, 4096).description;
}

RunConfig config_of(const std::vector<std::string>& sets) {
  return accepted("", sets).config;
}

std::string refusal(const std::vector<std::string>& sets, int64_t ranks,
                    const Placement& placement = {}) {
  const RunConfig config = config_of(sets);
  return message_of<ConfigError>(
      [&] { describe_layout(config, small(false), ranks, placement); });
}

TEST(LayoutDescription, WhatDoesNotFitIsRefusedWithItsNumbers) {
  EXPECT_EQ(refusal({"parallel.pp=8", "batch.global_size=8"}, 8),
            "[pipeline] 6 layers cannot fill 8 stages (parallel.pp x virtual_stages): "
            "every stage holds at least one layer; use at most 6 stages");
  EXPECT_EQ(refusal({"parallel.zero=1", "parallel.shard_group=3"}, 8),
            "[parallel] parallel.shard_group = 3 does not divide the 8 ranks of dp x cp; "
            "choose one of their divisors, or \"world\"");
  EXPECT_EQ(
      refusal({"parallel.pp=2", "parallel.partition=[1,2,3]"}, 2),
      "[pipeline] parallel.partition has 3 layer counts for 2 stages (parallel.pp x "
      "virtual_stages); give one count per stage");
  EXPECT_EQ(refusal({"parallel.tp=16"}, 16),
            "[parallel] parallel.tp = 16 is more than the model's 8 query heads "
            "(num_attention_heads); use at most 8");
  EXPECT_EQ(refusal({"parallel.pp=2", "parallel.pipeline=interleaved",
                     "parallel.virtual_stages=3", "batch.global_size=3"},
                    2),
            "[pipeline] parallel.pipeline = \"interleaved\" needs a multiple of "
            "parallel.pp = 2 micro batches, not 3; change batch.global_size or "
            "batch.micro_size so that there are 2 or 4, or choose \"1f1b\"");
}

TEST(LayoutDescription, GatheredWeightsNeedRoomForTheUnitsOfAStage) {
  // Bytes of a table of 64000 elements and of blocks of 26624 elements, padded, in bf16.
  const double least = 1e-9 * 2.0 * (65536 + 2 * 28672);
  const auto asked = [](double gb) {
    return std::vector<std::string>{"parallel.zero=3", "parallel.pp=2",
                                    fmt::format("memory.gathered_gb={:.9f}", gb)};
  };
  const LayoutDescription layout =
      describe_layout(config_of(asked(least)), small(false), 4);
  EXPECT_EQ(layout.gathered_budget, 245760);
  EXPECT_EQ(refusal(asked(least - 1e-9), 4),
            fmt::format("[memory] memory.gathered_gb = {} is too small: one unit in use "
                        "and the next unit that is being gathered take 0.00024576 GB on "
                        "stage 0; give at least that, or 0",
                        least - 1e-9));
}

TEST(LayoutDescription, AShardGroupIsNotCutToThirtyTwoBits) {
  EXPECT_NE(refusal({"parallel.zero=1", "parallel.shard_group=4294967297"}, 2)
                .find("parallel.shard_group = 4294967297 does not divide the 2 ranks"),
            std::string::npos);
}

TEST(LayoutDescription, ShardGroupsOfANodeNeedTheSameNumberOnEveryMachine) {
  const RunConfig config =
      config_of({"parallel.zero=1", "parallel.shard_group=node", "parallel.tp=2"});
  const auto shards = [&](const Placement& placement) {
    return describe_layout(config, small(false), 16, placement).shards;
  };
  EXPECT_EQ(shards({}), 8);
  EXPECT_EQ(shards(Placement::even(4)), 2);
  EXPECT_EQ(shards(Placement::even(2)), 1);
  const std::string uneven =
      refusal({"parallel.zero=1", "parallel.shard_group=node"}, 8, Placement::even(3));
  EXPECT_NE(uneven.find("here there are 2 to 3;"), std::string::npos) << uneven;
  // If the machines have different numbers of ranks, they cannot each be a shard group,
  // since shard groups must be equally large.
  const std::string differ =
      refusal({"parallel.zero=1", "parallel.shard_group=node", "parallel.tp=2"}, 4,
              Placement::listed({0, 1, 0, 2}));
  EXPECT_NE(differ.find("here there are 1 to 2;"), std::string::npos) << differ;
  const std::string apart = refusal({"parallel.zero=1", "parallel.shard_group=node"}, 4,
                                    Placement::listed({0, 1, 0, 1}));
  EXPECT_NE(apart.find("side by side; here there are 2 to 2;"), std::string::npos)
      << apart;
}

/// Checks that over all ranks each element of each parameter is counted once.
TEST(LayoutDescription, EveryElementIsSavedByOneRankAlone) {
  const std::vector<std::pair<std::vector<std::string>, int>> cases = {
      {{"parallel.zero=1"}, 4},
      {{"parallel.zero=3", "parallel.tp=4", "parallel.sequence=true"}, 8},
      {{"parallel.zero=2", "parallel.shard_group=2", "parallel.pp=2"}, 8},
      {{"parallel.pp=3", "parallel.virtual_stages=2", "parallel.pipeline=interleaved",
        "batch.global_size=12"},
       6},
      {{"parallel.cp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero=1"}, 8}};
  for (const auto& [sets, ranks] : cases) {
    const RunConfig config = config_of(sets);
    for (const bool tied : {false, true}) {
      const ModelDescription model = small(tied);
      const LayoutDescription layout = describe_layout(config, model, ranks);
      std::map<std::string, int64_t> saved;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto placed = layout.parameters(model, rank);
        for (const BucketPlan& bucket : plan_buckets(placed, layout.sharding(rank))) {
          for (const BucketMember& m : bucket.members) {
            const int64_t begin = std::max(m.begin, bucket.saved.begin);
            const int64_t end = std::min(m.begin + m.num_elements, bucket.saved.end);
            saved[placed[m.parameter].slice.name] += std::max<int64_t>(end - begin, 0);
          }
        }
      }
      for (const format::TensorSlice& whole : model.tensors()) {
        EXPECT_EQ(saved[whole.name], whole.num_elements()) << whole.name;
      }
      EXPECT_EQ(saved.size(), model.names().size());
    }
  }
}

TEST(LayoutDescription, SumGroupsFollowFromHowParametersSplit) {
  const RunConfig config = config_of({"parallel.tp=4", "parallel.sequence=true",
                                      "parallel.pp=2", "batch.global_size=8"});
  const ModelDescription model = small(/*tied=*/true);
  const LayoutDescription layout = describe_layout(config, model, 8);
  std::map<std::string, PlacedParameter> last;
  for (const PlacedParameter& p : layout.parameters(model, 5)) last[p.slice.name] = p;
  EXPECT_EQ(last.at("model.norm.weight").sum_group, kTensorSum);
  EXPECT_FALSE(last.at("model.norm.weight").counted);
  EXPECT_EQ(last.at("model.layers.5.self_attn.k_proj.weight").sum_group, kKeySum);
  EXPECT_EQ(last.at("model.layers.5.self_attn.q_proj.weight").sum_group, kNoSum);
  EXPECT_EQ(last.at("model.embed_tokens.weight").sum_group, kTiedSum);
  EXPECT_FALSE(last.at("model.embed_tokens.weight").counted) << "the first stage's is";
}

/// All ranks of tp need buckets with the same parameters, since a bucket is sent as a
/// whole.
TEST(LayoutDescription, CopiesOnTensorRanksHaveEqualBuckets) {
  const RunConfig config =
      config_of({"parallel.tp=4", "parallel.sequence=false", "batch.global_size=8"});
  ModelDescription model = small(/*tied=*/false);
  // One matrix becomes a split vector, as the weight of a wide norm is (ops/wide_norm.h).
  for (ParameterDescription& p : model.units[1].parameters) {
    if (p.name != "model.layers.0.mlp.up_proj.weight") continue;
    p.shape.resize(1);
  }
  const LayoutDescription layout = describe_layout(config, model, 4);
  using Names = std::vector<std::string>;
  std::set<std::vector<Names>> of_ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const auto placed = layout.parameters(model, rank);
    std::vector<Names> copies;
    for (const BucketPlan& bucket : plan_buckets(placed, layout.sharding(rank))) {
      if (bucket.sum_group != kTensorFirst) continue;
      EXPECT_EQ(LayoutDescription::copy_group(bucket.sum_group), GroupKind::Tp);
      EXPECT_EQ(bucket.counted, rank == 0);
      for (Names& names = copies.emplace_back(); const BucketMember& m : bucket.members) {
        names.push_back(placed[m.parameter].slice.name);
      }
    }
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(std::ranges::count(copies[0], "model.norm.weight"), 1);
    of_ranks.insert(copies);
  }
  EXPECT_EQ(of_ranks.size(), 1U);
}

/// A layout of eight ranks in which two ranks have all experts together.
TEST(LayoutDescription, ExpertsHaveBucketsOfTheirOwnGroups) {
  ModelDescription model = small(/*tied=*/false);
  const std::string expert = "model.layers.0.mlp.up_proj.weight";
  for (ParameterDescription& p : model.units[1].parameters) {
    if (p.name == expert) p.expert = ExpertNumber{1, 2};
  }
  LayoutDescription layout =
      describe_layout(config_of({"parallel.zero=1", "parallel.shard_group=4"}), model, 8);
  layout.ep = 2;
  const auto placed = layout.parameters(model, 5);
  int found = 0;
  for (const BucketPlan& bucket : plan_buckets(placed, layout.sharding(5))) {
    const int64_t shards = bucket.num_elements / bucket.owned.size();
    EXPECT_EQ(shards, bucket.expert ? 2 : 4);
    for (const BucketMember& member : bucket.members) {
      EXPECT_EQ(placed[member.parameter].slice.name == expert, bucket.expert);
    }
    if (!bucket.expert) continue;
    ++found;
    EXPECT_EQ(bucket.owned, (FlatRange{0, bucket.num_elements}.part(0, 2)));
    EXPECT_EQ(layout.rank_groups().members(layout.shard_group(bucket), 5),
              (std::vector<int>{5, 7}));
    EXPECT_EQ(layout.rank_groups().members(layout.replica_group(bucket), 5),
              (std::vector<int>{1, 5}));
  }
  EXPECT_EQ(found, 1);
}

TEST(LayoutDescription, BytesAreThoseOfItsBuckets) {
  const ModelDescription model = small(false);
  const auto bytes = [&](const std::vector<std::string>& sets, int ranks) {
    const RunConfig config = config_of(sets);
    const LayoutDescription layout = describe_layout(config, model, ranks);
    return state_bytes(plan_buckets(layout.parameters(model, 0), layout.sharding(0)),
                       config.precision);
  };
  const StateBytes whole = bytes({}, 1);
  const int64_t elements = whole.weights / 2;
  EXPECT_GE(elements, model.num_parameters());
  EXPECT_LE(elements, model.num_parameters() + 60 * kFlatAlign);
  EXPECT_EQ(whole.gradients, 4 * elements);
  EXPECT_EQ(whole.masters, 4 * elements);
  EXPECT_EQ(whole.moments, 8 * elements);
  EXPECT_EQ(bytes({"precision.compute=fp32"}, 1).masters, 0);
  const StateBytes rounded =
      bytes({"precision.master=bf16_sr", "precision.moments=bf16"}, 1);
  EXPECT_EQ(rounded.masters, 0);
  EXPECT_EQ(rounded.weights + rounded.moments, 6 * elements);
  const StateBytes sharded = bytes({"parallel.zero=1"}, 4);
  EXPECT_NEAR(static_cast<double>(sharded.moments),
              static_cast<double>(whole.moments) / 4, 1e5);
  EXPECT_GE(sharded.weights, whole.weights);
  EXPECT_LT(bytes({"parallel.zero=3"}, 4).weights, whole.weights / 3);
}

TEST(LayoutDescription, ACheckpointHasMastersOnceAndMomentsOfWhatIsTrained) {
  const ModelDescription model = small(false);
  const PrecisionSection usual = config_of({}).precision;
  const PrecisionSection rounded =
      config_of({"precision.master=bf16_sr", "precision.moments=bf16"}).precision;
  EXPECT_EQ(checkpoint_bytes(model, usual), 12 * model.num_parameters());
  EXPECT_EQ(checkpoint_bytes(model, rounded), 6 * model.num_parameters());
  const auto all = [](const std::string&) { return true; };
  EXPECT_EQ(checkpoint_bytes(model, usual, all), 4 * model.num_parameters());
}

using Sizes = std::vector<int64_t>;

/// Returns the partition that a run begins with, and the one of older versions.
std::pair<Sizes, Sizes> partitions(const ModelDescription& model, int64_t pp) {
  RunConfig config = config_of({"batch.global_size=8", "data.seq_len=4096"});
  config.parallel.pp = pp;
  return {describe_layout(config, model, pp).partition(),
          partition_by_average(config, model)};
}

TEST(LayoutDescription, EqualLayersLieInStagesAsInOlderVersions) {
  for (int64_t layers = 1; layers <= 48; ++layers) {
    for (const int64_t vocabulary : {7, 1000, 49152}) {
      DecoderSettings s;
      s.hidden_size = 8 * (3 + layers % 5);
      s.intermediate_size = 17 * (1 + layers % 7);
      s.num_hidden_layers = layers;
      s.num_attention_heads = s.num_key_value_heads = 2;
      s.head_dim = 8;
      s.rms_norm_eps = 1e-5;
      const ModelDescription model = make_llama(s, vocabulary, 4096).description;
      for (int64_t pp = 1; pp <= std::min<int64_t>(layers, 12); ++pp) {
        const auto [now, before] = partitions(model, pp);
        ASSERT_EQ(now, before) << layers << " layers in " << pp << " stages, "
                               << vocabulary << " words";
      }
    }
  }
}

/// A layer that sees all of 4096 positions costs 28672 + 128 x 2048 multiplications a
/// token, a layer with a window of 64 costs 28672 + 128 x 63.5, and the head 64000.
TEST(LayoutDescription, LayersWithWindowsCostLess) {
  const auto model = [](int64_t layers, const std::vector<size_t>& whole) {
    ModelDescription found = small(false, layers);
    for (size_t layer = 0; layer < static_cast<size_t>(layers); ++layer) {
      const bool sees_all = std::ranges::count(whole, layer) > 0;
      if (!sees_all) found.units[1 + layer].work.window = 64;
    }
    return found;
  };
  EXPECT_EQ(partitions(model(6, {0}), 2), (std::pair{Sizes{1, 5}, Sizes{3, 3}}));
  EXPECT_EQ(partitions(model(6, {5}), 2), (std::pair{Sizes{5, 1}, Sizes{3, 3}}));
  EXPECT_EQ(partitions(model(12, {5, 11}), 3),
            (std::pair{Sizes{5, 4, 3}, Sizes{4, 4, 4}}));
  // A window as long as the sequence leaves nothing out.
  const ModelDescription all = model(6, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(partitions(all, 2).first, partitions(all, 2).second);
}

/// Qwen3-30B-A3B with three plain layers, each of which costs about twice as much as a
/// layer whose tokens go to 8 of 128 experts. The head costs as much as four layers.
TEST(LayoutDescription, PlainLayersAmongExpertsCostWhatTheyMultiply) {
  OrderedJson json = OrderedJson::parse(
      read_text(source_dir() / "tests/fixtures/configs/qwen3-30b-a3b.json"));
  json["mlp_only_layers"] = {0, 1, 2};
  json["intermediate_size"] = 18432;
  const ModelDescription model = parse_model_config(json.dump(), "c.json").description;
  EXPECT_EQ(partitions(model, 4),
            (std::pair{Sizes{11, 14, 14, 9}, Sizes{13, 13, 13, 9}}));
}

TEST(LayoutDescription, APartitionThatASettingSaysIsTakenAsItIs) {
  const RunConfig config =
      config_of({"parallel.pp=2", "parallel.partition=[4,2]", "batch.global_size=8"});
  EXPECT_EQ(describe_layout(config, small(false), 2).partition(), (Sizes{4, 2}));
  EXPECT_EQ(partition_by_average(config, small(false)), (Sizes{4, 2}));
}

/// Plans the parameters and buckets of every rank for Llama 3 70B.
TEST(LayoutDescription, OfManyRanksTakesLittleTime) {
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs/llama3-70b.json")
          .description;
  const RunConfig config = config_of({"parallel.tp=8", "parallel.pp=4", "parallel.zero=1",
                                      "batch.global_size=1024", "data.seq_len=8192"});
  const system::Stopwatch watch;
  const LayoutDescription layout =
      describe_layout(config, model, 512, Placement::even(8));
  int64_t elements = 0;
  for (int rank = 0; rank < 512; ++rank) {
    const auto placed = layout.parameters(model, rank);
    for (const BucketPlan& b : plan_buckets(placed, layout.sharding(rank))) {
      elements += b.saved.size();
    }
  }
  EXPECT_GE(elements, model.num_parameters());
  EXPECT_LT(watch.seconds(), 2.0);  // 0.1 s on an idle machine
  RecordProperty("milliseconds", static_cast<int>(1000 * watch.seconds()));
}

/// Returns, for each matrix that shares its input with the matrix before, its name and
/// the number of elements between the two; -1: they are in different buckets.
std::map<std::string, int64_t> gaps(const ModelDescription& model, int tp) {
  const RunConfig config = config_of({"parallel.tp=" + std::to_string(tp)});
  const LayoutDescription layout = describe_layout(config, model, tp);
  const auto placed = layout.parameters(model, 0);
  std::map<size_t, std::pair<size_t, BucketMember>>
      members;  // each with the number of its bucket
  const auto buckets = plan_buckets(placed, layout.sharding(0));
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const BucketMember& m : buckets[b].members) members[m.parameter] = {b, m};
  }
  std::map<std::string, int64_t> gaps;
  size_t before = 0;
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].slice.extent.size() != 2) continue;
    if (placed[i].joint) {
      const auto& [bucket, mine] = members.at(i);
      const auto& [other, next] = members.at(before);
      gaps[placed[i].slice.name] =
          bucket == other ? next.begin - mine.begin - mine.num_elements : -1;
    }
    before = i;
  }
  return gaps;
}

TEST(LayoutDescription, MatricesWithOneInputLieSideBySide) {
  const ModelDescription large =
      load_model_config(source_dir() / "tests/fixtures/configs/llama3-70b.json")
          .description;
  for (const int tp : {1, 8}) {
    const auto of_large = gaps(large, tp);
    EXPECT_EQ(of_large.size(), 3U * 80U);  // k, v and up
    for (const auto& [name, gap] : of_large) EXPECT_EQ(gap, 0) << name;
  }
  // With four ranks two ranks share a key head. They add the gradients of keys, but not
  // those of queries, so that the two matrices are in different buckets.
  const auto replicated = gaps(small(false), 4);
  const std::string layer = "model.layers.3.";
  EXPECT_EQ(replicated.at(layer + "self_attn.k_proj.weight"), -1);
  EXPECT_EQ(replicated.at(layer + "mlp.up_proj.weight"), 512);  // 24 rows of 64, padded
}

}  // namespace
}  // namespace longhaul::layout
