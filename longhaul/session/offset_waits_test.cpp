#include "longhaul/session/offset_waits.h"

#include <gtest/gtest.h>

#include "tests/dist/tiny_models.h"

namespace longhaul::session {
namespace {

using Sizes = std::vector<int64_t>;

layout::ShardPlan over(int64_t tp) { return {.tp = tp}; }

TEST(ExpertSizes, AreThoseOfEachRankOfTp) {
  const ModelDescription model = testing::tiny_model("qwen3_moe").description;
  EXPECT_EQ(expert_sizes(model, over(1)), (Sizes{22, 40}));
  EXPECT_EQ(expert_sizes(model, over(2)), (Sizes{11, 40}));
  EXPECT_EQ(expert_sizes(model, over(3)), (Sizes{7, 8, 40})) << "an uneven split";
  EXPECT_EQ(expert_sizes(testing::tiny_model("llama").description, over(1)), Sizes());
}

/// Returns the warning for a model with seven experts in each layer but layer 2. Those
/// parameters are frozen whose names contain one of `parts`.
std::string said_of_frozen(const std::vector<std::string>& parts, int64_t ep = 1) {
  return describe_partly_frozen(testing::tiny_model("qwen3_moe").description, ep,
                                [&](const std::string& name) {
                                  for (const std::string& part : parts) {
                                    if (name.find(part) != std::string::npos) return true;
                                  }
                                  return false;
                                });
}

TEST(PartlyFrozenExperts, AreToldByTheirLayers) {
  EXPECT_EQ(said_of_frozen({}), "");
  EXPECT_EQ(
      said_of_frozen({"layers.1.mlp.experts.0."}),
      "products of experts run one expert after another, and the host waits for the "
      "device in layer 1: optimizer.groups freezes some matrices of the experts and "
      "not others; freeze all experts of a layer, or none");
  EXPECT_NE(
      said_of_frozen({".experts.0."}).find("in 3 layers, of which layer 0 is the first"),
      std::string::npos);
  EXPECT_NE(said_of_frozen({".gate_proj"}), "") << "gate and up are one product";
}

TEST(PartlyFrozenExperts, AreNoneWhereAProductHasEither) {
  for (const char* part : {".experts.", "layers.1.", "router", ".self_attn.", "mlp.gate.",
                           ".down_proj", ".layers.2.mlp.gate_proj"}) {
    EXPECT_EQ(said_of_frozen({part}), "") << part;
  }
  EXPECT_EQ(said_of_frozen({".gate_proj", ".up_proj"}), "");
  // Each rank has one expert alone.
  EXPECT_EQ(said_of_frozen({".experts.0."}, 7), "");
}

}  // namespace
}  // namespace longhaul::session
