#include "longhaul/optim/param_groups.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

const std::vector<std::string> kNames{
    "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
    "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.bias",
    "model.norm.weight"};

OptimizerSection section() {
  OptimizerSection s;
  s.weight_decay = 0.1;
  return s;
}

TEST(ParamGroups, NormsAndBiasesAreNotDecayedByDefault) {
  const auto groups = assign_param_groups(kNames, section());
  ASSERT_EQ(groups.settings.size(), 5U);
  const double expected[] = {0.1, 0.0, 0.1, 0.0, 0.0};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(groups.settings[i], (ParamSettings{1.0, expected[i], false})) << kNames[i];
  }
  EXPECT_TRUE(groups.warnings.empty());
}

TEST(ParamGroups, TheFirstGroupThatMatchesWins) {
  OptimizerSection s = section();
  s.groups = {{"embed", 0.5, {}, false}, {"*weight", 2.0, 0.3, true}};
  const auto groups = assign_param_groups(kNames, s);
  EXPECT_EQ(groups.settings[0], (ParamSettings{0.5, 0.1, false}));
  EXPECT_EQ(groups.settings[2], (ParamSettings{2.0, 0.3, true}));
  EXPECT_EQ(groups.settings[3], (ParamSettings{1.0, 0.0, false}));
}

TEST(ParamGroups, AGroupsOwnDecayHoldsForNormsToo) {
  OptimizerSection s = section();
  s.groups = {{"model.norm.weight", 1.0, 0.2, false}, {"*layernorm*", 3.0, {}, false}};
  const auto groups = assign_param_groups(kNames, s);
  EXPECT_EQ(groups.settings[4].weight_decay, 0.2);
  EXPECT_EQ(groups.settings[1], (ParamSettings{3.0, 0.0, false}));
}

TEST(ParamGroups, AGroupThatMatchesNothingIsAWarningThatNamesIt) {
  OptimizerSection s = section();
  s.groups = {{"embeding", 0.1, {}, false}};
  const auto groups = assign_param_groups(kNames, s);
  ASSERT_EQ(groups.warnings.size(), 1U);
  EXPECT_NE(groups.warnings[0].find("\"embeding\" matches none of the 5 parameters"),
            std::string::npos)
      << groups.warnings[0];
}

TEST(ParamGroups, FreezingEverythingIsRefused) {
  OptimizerSection s = section();
  s.groups = {{"*", 1.0, {}, true}};
  EXPECT_THROW(assign_param_groups(kNames, s), ConfigError);
}

}  // namespace
}  // namespace longhaul::optim
