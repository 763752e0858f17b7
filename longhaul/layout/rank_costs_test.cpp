#include "longhaul/layout/rank_costs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/base/process.h"
#include "longhaul/families/model_config.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/settings.h"

namespace longhaul::layout {
namespace {

ModelDescription llama3_70b() {
  return load_model_config(source_dir() / "tests/fixtures/configs/llama3-70b.json")
      .description;
}

RunConfig settings(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"parallel.tp=8", "parallel.pp=4", "parallel.zero=1",
                                   "batch.global_size=1024", "data.seq_len=8192"};
  sets.insert(sets.end(), more.begin(), more.end());
  return accepted("", sets).config;
}

RankCosts costs_of(const std::vector<std::string>& more, int ranks, int rank) {
  const RunConfig config = settings(more);
  const ModelDescription model = llama3_70b();
  const LayoutDescription layout =
      describe_layout(config, model, ranks, Placement::even(8));
  return LayoutCosts(config, model, layout).of(rank);
}

/// Expected numbers were computed by hand from the sizes: hidden 8192, inner 28672, 64
/// query and 8 key heads of 128.
TEST(RankCosts, OfAStageAreItsLayersTimesWhatEachKeeps) {
  const RankCosts second = costs_of({}, 512, 128);
  const int64_t tokens = 8192, outside = tokens / 8, layers = 20;
  const int64_t layer = outside * (4 * 8192 * 2 + 8) +
                        tokens * ((2 * 1024 + 2 * 128 + 3 * 3584) * 2 + 8 * 4);
  // Under 1f1b the second of four stages has three micro batches in flight.
  EXPECT_EQ(second.activations.forwards, 3);
  EXPECT_EQ(second.activations.in_flight.total(), 3 * (layers * layer + 8 * tokens));
  EXPECT_EQ(second.activations.logits, 0);
  const RankCosts full = costs_of({"memory.recompute=full"}, 512, 128);
  EXPECT_EQ(full.activations.in_flight.total(),
            3 * (layers * outside * 8192 * 2 + 8 * tokens));
  const RankCosts last = costs_of({}, 512, 3 * 128);
  EXPECT_EQ(last.activations.forwards, 1);
  // A chunk of 2^24 logits has room for 1046 rows of a rank's 16032 columns. It has 1024
  // rows, which are whole tiles.
  EXPECT_EQ(last.activations.logits, 1024 * 16032 * 2);
  // A device other than a CPU may hold one GiB of logits, here those of all tokens.
  const RankCosts there = costs_of({"run.device=cuda"}, 512, 3 * 128);
  EXPECT_EQ(there.activations.logits, tokens * 16032 * 2);
}

TEST(RankCosts, OfTrainiumHaveACollectiveForEachParameterAndWhatARankOwnsBeside) {
  const RankCosts flat = costs_of({"run.device=cuda"}, 512, 0);
  const RankCosts apart = costs_of({"run.device=neuron"}, 512, 0);
  const auto gathers = [](const RankCosts& costs) {
    int64_t calls = 0;
    for (const TrafficLine& line : costs.traffic.lines()) {
      if (line.kind == TrafficKind::Weights) calls += line.calls;
    }
    return calls;
  };
  // The first of four stages has 20 layers of nine parameters, and the embedding.
  EXPECT_EQ(gathers(apart), 20 * 9 + 1);
  EXPECT_LT(gathers(flat), gathers(apart));
  // Alone, each of the 40 norms is padded from 8192 elements to 16 shards of 1024.
  const int64_t owned = apart.parameters / 16 + int64_t{40} * (1024 - 512);
  const int64_t padding = int64_t{40} * (16 * 1024 - 8192);
  EXPECT_EQ(apart.state.weights - flat.state.weights, 2 * (owned + padding));
}

TEST(RankCosts, OfAPipelineSendOneBoundaryAStepAndDirection) {
  const RankCosts first = costs_of({}, 512, 0);
  const int64_t boundary = 8192 / 8 * 8192 * 2;
  const int64_t micro_batches = 1024 / 16;
  EXPECT_EQ(first.traffic.bytes(TrafficKind::Pipeline), micro_batches * boundary);
  EXPECT_EQ(costs_of({}, 512, 128).traffic.bytes(TrafficKind::Pipeline),
            2 * micro_batches * boundary);
  EXPECT_EQ(first.traffic.bytes(TrafficKind::Context), 0);
}

/// The expected bytes follow the formulas of docs/experts.md, for 32 layers and 8 micro
/// batches of 4096 tokens. Each token goes to 2 of 8 experts. A row takes 16 bytes more
/// on the way to its expert, with its weight, and numbers are sent once.
TEST(RankCosts, OfExpertsSendRowsBothWaysAndTheirNumbersBefore) {
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs/mixtral-8x7b.json")
          .description;
  const int64_t rows = 4096 * 2 * 7 / 8, row = 4096 * 2, numbers = 7 * 8;
  for (const int64_t forwards : {1, 2}) {
    const RunConfig config =
        accepted("", {"parallel.ep=8", "batch.global_size=64", "batch.micro_size=1",
                      "data.seq_len=4096",
                      forwards == 2 ? "memory.recompute=full" : "memory.recompute=none"})
            .config;
    const LayoutDescription layout =
        describe_layout(config, model, 8, Placement::even(8));
    const Traffic traffic = LayoutCosts(config, model, layout).of(0).traffic;
    EXPECT_EQ(traffic.bytes(TrafficKind::Experts),
              32 * 8 * ((forwards + 1) * rows * (row + 16 + row) + numbers));
  }
}

/// Returns what rank 0 of 2 holds of a model whose micro batches have 8192 tokens.
ActivationBytes held_with_experts(const std::string& model_name, int ep,
                                  const std::string& recompute = "none") {
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs" / (model_name + ".json"))
          .description;
  const RunConfig config =
      accepted("", {fmt::format("parallel.ep={}", ep), "batch.global_size=2",
                    "batch.micro_size=1", "data.seq_len=8192",
                    "memory.recompute=" + recompute})
          .config;
  const LayoutDescription layout = describe_layout(config, model, 2, Placement::even(2));
  return LayoutCosts(config, model, layout).of(0).activations;
}

/// Qwen3-30B-A3B has 48 layers and sends a token to 8 experts, with 2048 features and 768
/// inner ones. On one rank the rows for experts and the gradients of gate and up exist at
/// once. A row of an exchange takes 16 bytes more, the room of 8 features.
TEST(RankCosts, OfExpertsOnOtherRanksHoldTheRowsOfAnExchangeTwice) {
  const int64_t rows = 8192 * 8, places = rows * (8 + 8);
  const auto one = held_with_experts("qwen3-30b-a3b", 1);
  const auto two = held_with_experts("qwen3-30b-a3b", 2);
  EXPECT_EQ(two.work - one.work, rows * (2 * 2056 - (2048 + 2 * 768)) * 2);
  EXPECT_EQ(two.in_flight.total() - one.in_flight.total(), 48 * places);
  const auto one_again = held_with_experts("qwen3-30b-a3b", 1, "full");
  const auto two_again = held_with_experts("qwen3-30b-a3b", 2, "full");
  EXPECT_EQ(two_again.work - one_again.work, two.work - one.work + places);
  EXPECT_EQ(two_again.in_flight, one_again.in_flight);
  // The gradients of Mixtral's 14336 inner features take more memory than an exchange.
  EXPECT_EQ(held_with_experts("mixtral-8x7b", 2).work,
            held_with_experts("mixtral-8x7b", 1).work);
}

TEST(RankCosts, OfWholeGradientsAreThoseOfATableAndOfTwoBlocks) {
  const auto elements = [](const std::vector<std::vector<int64_t>>& units) {
    std::vector<BucketPlan> buckets;
    for (size_t unit = units.size(); unit-- > 0;) {
      for (const int64_t size : units[unit]) {
        BucketPlan bucket;
        bucket.unit = static_cast<int>(unit);
        bucket.num_elements = size;
        bucket.grads_stay = false;
        buckets.push_back(bucket);
      }
    }
    return whole_gradients(buckets, PrecisionSection()) / 4;
  };
  EXPECT_EQ(elements({}), 0);
  EXPECT_EQ(elements({{100}, {10}, {10}, {10}, {100}}), 100 + 2 * 10);
  EXPECT_EQ(elements({{10}, {10}, {10}}), 2 * 10);
  EXPECT_EQ(elements({{100}, {10}, {100}}), 100 + 10);
  // Each block has a second bucket for its experts, which is larger than a table.
  EXPECT_EQ(elements({{100}, {10, 300}, {10, 300}, {10, 300}, {100}}), 100 + 2 * 310);
  // Every other block has experts.
  EXPECT_EQ(elements({{100}, {10, 20}, {10, 300}, {10, 20}, {10, 300}, {100}}),
            100 + 2 * 10 + 20 + 300);
}

/// Asks for the costs of every rank. Ranks with the same place along pp and tp have equal
/// costs.
TEST(RankCosts, OfManyRanksTakeLittleTimeAndMemory) {
  const ModelDescription model = llama3_70b();
  const auto measure = [&](const std::vector<std::string>& sets, int ranks) {
    const RunConfig config = settings(sets);
    const int64_t before = resident_bytes();
    const system::Stopwatch watch;
    const LayoutDescription layout =
        describe_layout(config, model, ranks, Placement::even(8));
    const LayoutCosts costs(config, model, layout);
    int64_t parameters = 0;
    for (int rank = 0; rank < ranks; ++rank) parameters += costs.of(rank).parameters;
    EXPECT_GE(parameters,
              ranks / (layout.shape.pp * layout.shape.tp) * model.num_parameters());
    return std::pair(watch.seconds(), resident_bytes() - before);
  };
  const auto [small_seconds, small_bytes] = measure({}, 512);
  EXPECT_LT(small_seconds, 2.0);  // 0.1 s on an idle machine
  EXPECT_LT(small_bytes, 50 << 20);
  const auto [large_seconds, large_bytes] =
      measure({"parallel.pp=16", "parallel.cp=2", "batch.global_size=12800"}, 102400);
  EXPECT_LT(large_seconds, 5.0);
  RecordProperty("milliseconds_of_512", static_cast<int>(1000 * small_seconds));
  RecordProperty("kilobytes_of_512", static_cast<int>(small_bytes >> 10));
  RecordProperty("milliseconds_of_102400", static_cast<int>(1000 * large_seconds));
  RecordProperty("kilobytes_of_102400", static_cast<int>(large_bytes >> 10));
}

}  // namespace
}  // namespace longhaul::layout
