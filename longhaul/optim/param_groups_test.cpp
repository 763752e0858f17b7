#include "longhaul/optim/param_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

ParameterDescription parameter(const std::string& name, bool decays = true) {
  ParameterDescription p;
  p.name = name;
  p.shape = {4, 4};
  p.decays = decays;
  return p;
}

ModelDescription model_of(std::vector<ParameterDescription> parameters) {
  ModelDescription model;
  model.units.emplace_back().parameters = std::move(parameters);
  return model;
}

const ModelDescription& plain_model() {
  static const ModelDescription model =
      model_of({parameter("model.embed_tokens.weight"),
                parameter("model.layers.0.input_layernorm.weight", false),
                parameter("model.layers.0.mlp.up_proj.weight"),
                parameter("model.layers.0.mlp.up_proj.bias", false),
                parameter("model.norm.weight", false)});
  return model;
}

/// Returns a model like GPT-2 and BERT: parameters that share a tensor of the files, a
/// parameter with another name in the files, and names that older files spell in another
/// way.
ModelDescription shared_model() {
  ModelDescription model = model_of({parameter("net.h.0.attn.q_proj.weight"),
                                     parameter("net.h.0.attn.k_proj.weight"),
                                     parameter("net.h.0.mlp.up_proj.weight"),
                                     parameter("net.h.0.LayerNorm.weight", false)});
  std::vector<ParameterDescription>& p = model.units[0].parameters;
  p[0].stored = StoredForm{.name = "net.h.0.attn.c_attn.weight"};
  p[1].stored = StoredForm{.name = "net.h.0.attn.c_attn.weight"};
  p[2].stored = StoredForm{.name = "net.h.0.intermediate.dense.weight"};
  model.optional_prefix = "net.";
  model.old_endings = {{".LayerNorm.gamma", ".LayerNorm.weight"}};
  model.tied = TiedHead{"net.h.0.attn.q_proj.weight", "lm_head.weight"};
  return model;
}

OptimizerSection section() {
  OptimizerSection s;
  s.weight_decay = 0.1;
  return s;
}

std::set<std::string> frozen_by(const std::string& pattern) {
  OptimizerSection s = section();
  s.groups = {{pattern, 1.0, {}, true}};
  return assign_param_groups(shared_model(), s).frozen();
}

TEST(ParamGroups, NormsAndBiasesAreNotDecayedByDefault) {
  const auto groups = assign_param_groups(plain_model(), section());
  const std::map<std::string, tensor::ParameterClass> expected = {
      {"model.embed_tokens.weight", {1.0, 0.1, false}},
      {"model.layers.0.input_layernorm.weight", {1.0, 0.0, false}},
      {"model.layers.0.mlp.up_proj.weight", {1.0, 0.1, false}},
      {"model.layers.0.mlp.up_proj.bias", {1.0, 0.0, false}},
      {"model.norm.weight", {1.0, 0.0, false}}};
  EXPECT_EQ(groups.settings, expected);
  EXPECT_TRUE(groups.warnings.empty());
  EXPECT_TRUE(groups.unmatched.empty());
}

TEST(ParamGroups, TheFirstGroupThatMatchesWins) {
  OptimizerSection s = section();
  s.groups = {{"embed", 0.5, {}, false}, {"*weight", 2.0, 0.3, true}};
  const auto settings = assign_param_groups(plain_model(), s).settings;
  EXPECT_EQ(settings.at("model.embed_tokens.weight"),
            (tensor::ParameterClass{0.5, 0.1, false}));
  EXPECT_EQ(settings.at("model.layers.0.mlp.up_proj.weight"),
            (tensor::ParameterClass{2.0, 0.3, true}));
  EXPECT_EQ(settings.at("model.layers.0.mlp.up_proj.bias"),
            (tensor::ParameterClass{1.0, 0.0, false}));
}

TEST(ParamGroups, AGroupsOwnDecayHoldsForNormsToo) {
  OptimizerSection s = section();
  s.groups = {{"model.norm.weight", 1.0, 0.2, false}, {"*layernorm*", 3.0, {}, false}};
  const auto settings = assign_param_groups(plain_model(), s).settings;
  EXPECT_EQ(settings.at("model.norm.weight").weight_decay, 0.2);
  EXPECT_EQ(settings.at("model.layers.0.input_layernorm.weight"),
            (tensor::ParameterClass{3.0, 0.0, false}));
}

/// The pattern "up_proj" is a part of "gate_up_proj", which is a stored tensor and no
/// parameter.
TEST(ParamGroups,
     NamesOfFilesThatHoldExpertsTogetherCountForPatternsWithoutAnotherMatch) {
  const std::string gate = "net.h.0.moe.experts.0.gate_proj.weight";
  const std::string up = "net.h.0.moe.experts.0.up_proj.weight";
  const std::string down = "net.h.0.moe.experts.0.down_proj.weight";
  ModelDescription model = model_of({parameter(gate), parameter(up), parameter(down)});
  std::vector<ParameterDescription>& p = model.units[0].parameters;
  p[0].other_form = p[1].other_form =
      StoredForm{.name = "net.h.0.mlp.experts.gate_up_proj"};
  p[2].other_form = StoredForm{.name = "net.h.0.mlp.experts.down_proj"};
  const auto frozen = [&](const std::string& pattern) {
    OptimizerSection s = section();
    s.groups = {{pattern, 1.0, {}, true}};
    return assign_param_groups(model, s).frozen();
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(frozen("net.h.0.mlp.experts.gate_up_proj"), (Names{gate, up}));
  EXPECT_EQ(frozen("*gate_up*"), (Names{gate, up}));
  EXPECT_EQ(frozen("mlp.experts.down_proj"), (Names{down}));
  EXPECT_EQ(frozen("up_proj"), (Names{up}));
  OptimizerSection s = section();
  s.no_decay = {"*.mlp.experts.gate_up_proj"};
  const ParamGroups groups = assign_param_groups(model, s);
  EXPECT_EQ(groups.settings.at(up).weight_decay, 0.0);
  EXPECT_EQ(groups.settings.at(down).weight_decay, 0.1);
  EXPECT_TRUE(groups.warnings.empty());
}

TEST(ParamGroups, MatchEveryNameThatAParameterHas) {
  const std::string q = "net.h.0.attn.q_proj.weight";
  const std::string k = "net.h.0.attn.k_proj.weight";
  const std::string up = "net.h.0.mlp.up_proj.weight";
  const std::string norm = "net.h.0.LayerNorm.weight";
  using Names = std::set<std::string>;
  EXPECT_EQ(frozen_by("*c_attn*"), (Names{q, k}));  // all that the tensor holds
  EXPECT_EQ(frozen_by("net.h.0.attn.c_attn.weight"), (Names{q, k}));
  EXPECT_EQ(frozen_by("h.?.attn.c_attn.*"), (Names{q, k}));  // without the prefix
  EXPECT_EQ(frozen_by("h.?.attn.q_proj.*"), (Names{q}));
  EXPECT_EQ(frozen_by("q_proj"), (Names{q}));  // a part of the tensor
  EXPECT_EQ(frozen_by("*intermediate*"), (Names{up}));
  EXPECT_EQ(frozen_by("up_proj"), (Names{up}));
  EXPECT_EQ(frozen_by("*gamma"), (Names{norm}));  // the name in older files
  EXPECT_EQ(frozen_by_own_names(shared_model(),
                                [] {
                                  OptimizerSection s = section();
                                  s.groups = {{"*c_attn*", 1.0, {}, true},
                                              {"up_proj", 1.0, {}, true}};
                                  return s;
                                }()),
            (Names{up}));
}

TEST(ParamGroups, WhatOlderVersionsTreatedOtherwiseIsKnownByName) {
  using Names = std::set<std::string>;
  const std::string q = "net.h.0.attn.q_proj.weight";
  const std::string k = "net.h.0.attn.k_proj.weight";
  const std::string up = "net.h.0.mlp.up_proj.weight";
  OptimizerSection s = section();
  EXPECT_EQ(newly_meant(shared_model(), s), Names());
  s.groups = {{"*up_proj*", 0.5, {}, false}, {"*LayerNorm*", 0.5, {}, false}};
  EXPECT_EQ(newly_meant(shared_model(), s), Names()) << "by their own names";
  s.groups = {{"*c_attn*", 0.5, {}, false}};
  EXPECT_EQ(newly_meant(shared_model(), s), (Names{q, k}));
  s.groups = {{"*intermediate*", 1.0, 0.3, false}};
  EXPECT_EQ(newly_meant(shared_model(), s), (Names{up}));
  s.groups = {{"*intermediate*", 1.0, s.weight_decay, false}};
  EXPECT_EQ(newly_meant(shared_model(), s), Names()) << "the same by every name";
  s.groups.clear();
  s.no_decay = {"*c_attn*", "*bias"};
  EXPECT_EQ(newly_meant(shared_model(), s), (Names{q, k}));
}

TEST(ParamGroups, NoDecayMatchesEveryNameToo) {
  OptimizerSection s = section();
  s.no_decay = {"*c_attn*", "*LayerNorm*", "*bias"};
  const ParamGroups groups = assign_param_groups(shared_model(), s);
  EXPECT_EQ(groups.settings.at("net.h.0.attn.k_proj.weight").weight_decay, 0.0);
  EXPECT_EQ(groups.settings.at("net.h.0.mlp.up_proj.weight").weight_decay, 0.1);
  EXPECT_TRUE(groups.warnings.empty());  // a model need not have biases
  s.no_decay = {"*emb.weight"};
  ASSERT_EQ(assign_param_groups(shared_model(), s).warnings.size(), 1U);
}

TEST(ParamGroups, AGroupThatMatchesNothingIsRefusedByName) {
  RunConfig config;
  config.optimizer = section();
  config.origins["optimizer.groups"] = "run.toml:7:1";
  config.optimizer.groups = {{"embeding", 0.1, {}, false}, {"embed", 0.1, {}, false}};
  const ParamGroups groups = assign_param_groups(plain_model(), config.optimizer);
  ASSERT_EQ(groups.unmatched.size(), 1U);
  try {
    refuse_unmatched(config, groups);
    FAIL() << "a group without effect was accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "[config] run.toml:7:1: optimizer.groups: match = \"embeding\" matches none of "
        "the model's 5 parameters; the first parameter is model.embed_tokens.weight; "
        "longhaul inspect --names lists all of them, with their names in Hugging Face's "
        "files; correct the pattern, or remove it; otherwise the run would begin without "
        "the settings that it should apply");
  }
  config.optimizer.groups = {{"embed", 0.1, {}, false}};
  refuse_unmatched(config, assign_param_groups(plain_model(), config.optimizer));
}

TEST(ParamGroups, OfATiedHeadSayWhatItIsTiedTo) {
  OptimizerSection s = section();
  s.groups = {{"lm_head", 1.0, {}, true}};
  const ParamGroups groups = assign_param_groups(shared_model(), s);
  ASSERT_EQ(groups.unmatched.size(), 1U);
  EXPECT_NE(groups.unmatched[0].find("lm_head.weight is no parameter of its own here: "
                                     "config.json ties it to net.h.0.attn.q_proj.weight"),
            std::string::npos)
      << groups.unmatched[0];
}

TEST(ParamGroups, FreezingEverythingIsRefused) {
  OptimizerSection s = section();
  s.groups = {{"*", 1.0, {}, true}};
  EXPECT_THROW(assign_param_groups(plain_model(), s), ConfigError);
}

}  // namespace
}  // namespace longhaul::optim
