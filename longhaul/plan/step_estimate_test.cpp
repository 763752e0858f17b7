#include "longhaul/plan/step_estimate.h"
#include "longhaul/families/adapter.h"

#include <gtest/gtest.h>

#include "longhaul/base/process.h"
#include "longhaul/families/model_config.h"
#include "tests/support/settings.h"

namespace longhaul::plan {
namespace {

// These are the multiplications of a token in Llama 3 70B with weights, and with keys and
// values for each position that the token sees.
constexpr double kLayerProducts =
    2.0 * 8192 * 8192 + 2.0 * 8192 * 1024 + 3.0 * 8192 * 28672;
constexpr double kProducts = 80.0 * kLayerProducts + 8192.0 * 128256;
constexpr double kAttention = 80.0 * 2.0 * 8192;
constexpr double kParameters =
    80.0 * (kLayerProducts + 2.0 * 8192) + 2.0 * 8192.0 * 128256 + 8192;
constexpr double kTokens = 4096;
constexpr double kSeen = kTokens / 2.0;

/// Rates that differ, so that a part which uses the wrong one has another time.
Machine rates() {
  Machine machine;
  machine.products = 1e15;
  machine.attention = 3e14;
  machine.memory = 2e12;
  machine.peak = 2e15;
  machine.node_ranks = 8;
  machine.inside = {5e11, 0.0};
  machine.between = {5e10, 0.0};
  return machine;
}

StepEstimate estimate(std::vector<std::string> sets, int64_t ranks,
                      const Machine& machine = rates(),
                      const std::string& model_name = "llama3-70b") {
  sets.insert(sets.end(), {"data.seq_len=4096", "batch.micro_size=1"});
  const RunConfig config = accepted("", std::move(sets)).config;
  const ModelDescription model =
      load_run_model(config,
                     source_dir() / "tests/fixtures/configs" / (model_name + ".json"))
          .description;
  const layout::LayoutDescription layout =
      layout::describe_layout(config, model, ranks, layout::Placement::even(8));
  const auto costs = layout::stage_costs(config, model, layout);
  return estimate_step({config, model, layout, costs}, machine);
}

TimePart part(const StepEstimate& step, const std::string& name) {
  for (const TimePart& one : step.parts) {
    if (one.name == name) return one;
  }
  return {};
}

double exposed(const StepEstimate& step) {
  double sum = 0.0;
  for (const TimePart& one : step.parts) sum += one.seconds;
  return sum;
}

TEST(StepEstimate, OfOneRankIsItsOperationsAtTheirRates) {
  const StepEstimate step = estimate({"batch.global_size=2"}, 1);
  const double tokens = 2.0 * kTokens;
  EXPECT_NEAR(part(step, "matrix products").seconds / (6.0 * kProducts * tokens / 1e15),
              1.0, 1e-9);
  EXPECT_NEAR(
      part(step, "attention").seconds / (6.0 * kAttention * kSeen * tokens / 3e14), 1.0,
      1e-9);
  // A gradient twice, master and two moments read and written in fp32, a bf16 weight.
  EXPECT_NEAR(part(step, "optimizer").seconds / (34.0 * kParameters / 2e12), 1.0, 1e-6);
  EXPECT_GT(part(step, "norms, activations and copies").seconds, 0.0);
  EXPECT_EQ(step.parts.size(), 4U);
  EXPECT_NEAR(exposed(step), step.seconds, 1e-9);
  EXPECT_EQ(step.bubble, 0.0);
  EXPECT_NEAR(step.tokens_per_s, tokens / step.seconds, 1e-6);
  const double flops = 6.0 * (kProducts + kAttention * kSeen);
  EXPECT_NEAR(step.mfu_causal, flops * step.tokens_per_s / 2e15, 1e-9);
  EXPECT_GT(step.mfu, step.mfu_causal);
}

TEST(StepEstimate, OfAnAdapterHasNoWeightGradientsOfTheBase) {
  const StepEstimate step =
      estimate({"batch.global_size=1", "adapter.kind=lora", "adapter.rank=16",
                "adapter.alpha=16", "init.weights=w", "adapter.modules=q_proj"},
               1);
  const double adapter = 80.0 * 16.0 * 2.0 * 8192.0;
  const double operations = 2.0 * (2.0 * kProducts + 3.0 * adapter) * kTokens;
  EXPECT_NEAR(part(step, "matrix products").seconds / (operations / 1e15), 1.0, 1e-9);
}

TEST(StepEstimate, RecomputesOneForwardOfTheBlocks) {
  const StepEstimate step = estimate({"batch.global_size=1", "memory.recompute=full"}, 1);
  const double forward = 2.0 * 80.0 * kLayerProducts * kTokens / 1e15 +
                         2.0 * kAttention * kSeen * kTokens / 3e14;
  EXPECT_GT(part(step, "computed again").seconds, forward);
  EXPECT_LT(part(step, "computed again").seconds, 1.5 * forward);
}

TEST(StepEstimate, OfReplicasHidesWhatRunsBesideThePasses) {
  const StepEstimate step = estimate({"batch.global_size=2", "parallel.zero=1"}, 2);
  const TimePart gradients = part(step, "gradients of replicas");
  const TimePart weights = part(step, "weights gathered");
  EXPECT_NEAR(gradients.seconds + gradients.hidden, 4.0 * kParameters / 2.0 / 5e11, 0.01);
  EXPECT_NEAR(weights.seconds + weights.hidden, 2.0 * kParameters / 2.0 / 5e11, 0.01);
  EXPECT_GT(gradients.hidden, 0.8 * gradients.seconds);
  EXPECT_GT(weights.hidden, weights.seconds);
  EXPECT_NEAR(exposed(step), step.seconds, 1e-9);
}

TEST(StepEstimate, HidesNoMoreThanThePassesTake) {
  const StepEstimate step = estimate({"batch.global_size=16", "parallel.zero=3"}, 16);
  double passes = 0.0;
  for (const char* name :
       {"matrix products", "attention", "norms, activations and copies"}) {
    passes += part(step, name).seconds;
  }
  const double hidden =
      part(step, "gradients of replicas").hidden + part(step, "weights gathered").hidden;
  EXPECT_GT(hidden, 0.5 * passes);
  EXPECT_LE(hidden, passes * (1.0 + 1e-9));
}

TEST(StepEstimate, OfAPipelineWaitsAsItsScheduleDoes) {
  const std::vector<std::string> sets = {"batch.global_size=16", "parallel.pp=4"};
  const StepEstimate plain = estimate(sets, 4);
  // (p - 1) / (m + p - 1) of equal stages; the last one has the head as well.
  EXPECT_GT(plain.bubble, 0.05);
  EXPECT_LT(plain.bubble, 3.0 / 19.0);
  std::vector<std::string> more = sets;
  more.emplace_back("parallel.pipeline=zb-h1");
  EXPECT_LT(estimate(more, 4).bubble, plain.bubble);
}

TEST(StepEstimate, AddsWhatTensorParallelismExchanges) {
  const StepEstimate inside = estimate({"batch.global_size=1", "parallel.tp=8"}, 8);
  EXPECT_GT(part(inside, "exchanges over tp").seconds, 0.0);
  EXPECT_EQ(part(inside, "exchanges over tp").hidden, 0.0);
  const StepEstimate across = estimate({"batch.global_size=1", "parallel.tp=16"}, 16);
  EXPECT_GT(part(across, "exchanges over tp").seconds,
            part(inside, "exchanges over tp").seconds);
}

/// Mixtral sends each of 4096 tokens to 2 of its 8 experts, so that an expert has 1024
/// rows.
TEST(StepEstimate, TakesProductsOfExpertsAtTheRateOfTheirRows) {
  Machine machine = rates();
  machine.grouped_rates = {{256.0, 1e14}, {4096.0, 3e14}};
  const double others =
      32.0 * (2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 8.0 * 4096) + 4096.0 * 32000;
  const double experts = 32.0 * 2 * 3 * 4096 * 14336;
  const auto check = [&](std::vector<std::string> sets, int64_t ranks, double rate) {
    sets.emplace_back("batch.global_size=4");
    const StepEstimate step = estimate(sets, ranks, machine, "mixtral-8x7b");
    const double tokens = 4.0 * kTokens / static_cast<double>(ranks);
    EXPECT_NEAR(part(step, "matrix products").seconds /
                    (6.0 * tokens * (others / 1e15 + experts / rate)),
                1.0, 1e-9)
        << sets.front();
  };
  check({"parallel.ep=1"}, 1, 2e14);
  // Ranks that share the experts bring their tokens, and those of tp have the same ones.
  check({"parallel.ep=4"}, 4, 3e14);
  check({"parallel.tp=2"}, 2, 2e14);
  check({"parallel.ep=2", "parallel.cp=2"}, 2, 2e14);
  machine.grouped_rates.clear();
  check({"parallel.ep=4"}, 4, 1e15);
}

TEST(StepEstimate, TakesRowsOfExpertsAndMessagesOfStagesAsTheyWereMeasured) {
  Machine machine = rates();
  machine.exchanges = {{"ep", "expert rows", 8, 8, {1e15, 1.0}},
                       {"ep", "all_to_all", 8, 8, {1e15, 0.5}},
                       {"pp", "send_recv", 4, 4, {1e15, 1.0}}};
  // Each of 32 layers sends rows four times, and their numbers once, for a micro batch.
  const StepEstimate experts =
      estimate({"batch.global_size=8", "parallel.ep=8"}, 8, machine, "mixtral-8x7b");
  EXPECT_NEAR(part(experts, "exchanges over ep").seconds, 32.0 * (4.0 + 0.5), 0.1);
  // A step's first micro batch passes three times to the last stage, and its last one
  // passes three times back.
  const std::vector<std::string> sets = {"batch.global_size=16", "parallel.pp=4"};
  EXPECT_GT(estimate(sets, 4, machine).seconds, estimate(sets, 4).seconds + 5.0);
}

}  // namespace
}  // namespace longhaul::plan
