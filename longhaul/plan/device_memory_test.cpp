#include "longhaul/plan/device_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/layout/sent_bytes.h"
#include "tests/support/settings.h"

namespace longhaul::plan {
namespace {

constexpr int64_t kMixtureTokens = 8192;

/// Returns what rank 0 of four holds of a mixture whose experts are spread over `ep`
/// ranks.
DeviceMemory mixture_memory(int ep, double imbalance) {
  const ModelDescription model =
      load_model_config(source_dir() / "tests/fixtures/configs/qwen3-30b-a3b.json")
          .description;
  const RunConfig config =
      accepted("", {fmt::format("parallel.ep={}", ep), "batch.global_size=4",
                    "batch.micro_size=1", "memory.recompute=none",
                    fmt::format("data.seq_len={}", kMixtureTokens)})
          .config;
  const layout::LayoutDescription layout =
      layout::describe_layout(config, model, 4, layout::Placement::even(4));
  HardwareProfile profile;
  profile.device = "cpu";
  const auto costs = layout::stage_costs(config, model, layout, {}, profile.device);
  return device_memory(config, model, layout, costs, profile, imbalance).at(0);
}

/// Qwen3-30B-A3B has 48 layers and sends a token to 8 experts, with 2048 features and 768
/// inner ones.
TEST(DeviceMemory, OfUnevenExpertsHasTheirRowsAndNoOthers) {
  const DeviceMemory even = mixture_memory(2, 1.0);
  const DeviceMemory uneven = mixture_memory(2, 1.5);
  const int64_t more = kMixtureTokens * 8 / 2;
  // A row keeps its features, gate, up and their product in bf16, and its two places.
  const int64_t row = 2 * (2048 + 3 * 768) + 2 * 8;
  EXPECT_EQ(uneven.costs.activations.in_flight.total() -
                even.costs.activations.in_flight.total(),
            48 * more * row);
  // An exchange holds packed rows twice.
  EXPECT_EQ(uneven.costs.activations.work - even.costs.activations.work,
            more * 2 * layout::packed_row_bytes(2048, 2));
  EXPECT_EQ(uneven.costs.state.weights, even.costs.state.weights);
  EXPECT_GT(uneven.all(), even.all());
}

TEST(DeviceMemory, OfUnevenExpertsHasAtMostTheRowsOfAllRanks) {
  EXPECT_DOUBLE_EQ(mixture_memory(2, 9.0).all(), mixture_memory(2, 2.0).all());
  EXPECT_GT(mixture_memory(4, 9.0).all(), mixture_memory(4, 3.0).all());
  EXPECT_DOUBLE_EQ(mixture_memory(1, 9.0).all(), mixture_memory(1, 1.0).all());
}

}  // namespace
}  // namespace longhaul::plan
