#include "longhaul/families/differences.h"

#include "longhaul/base/json.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

constexpr std::string_view kOurModel = R"({
  "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
})";

std::string model_with(const std::string& field, const OrderedJson& value) {
  OrderedJson json = OrderedJson::parse(kOurModel);
  (json["rope_scaling"].contains(field) ? json["rope_scaling"] : json)[field] = value;
  return json.dump();
}

ModelConfig our_model() { return parse_model_config(kOurModel, "run/config.json"); }

std::string refusal_of(const std::string& theirs) {
  return message_of<ConfigError>(
      [&] { check_same_model(our_model(), theirs, "step/config.json", "step"); });
}

TEST(ModelFields, EachOneThatDiffersIsRefusedWithBothValues) {
  const std::vector<std::tuple<std::string, OrderedJson, std::string>> changes = {
      {"vocab_size", 101, "vocab_size is 100, was 101"},
      {"hidden_size", 128, "hidden_size is 64, was 128"},
      {"intermediate_size", 64, "intermediate_size is 128, was 64"},
      {"num_hidden_layers", 3, "num_hidden_layers is 2, was 3"},
      {"num_attention_heads", 8, "num_attention_heads is 4, was 8"},
      {"num_key_value_heads", 4, "num_key_value_heads is 2, was 4"},
      {"head_dim", 32, "head_dim is absent, was 32"},
      {"max_position_embeddings", 512, "max_position_embeddings is 256, was 512"},
      {"rms_norm_eps", 1e-6, "rms_norm_eps is 1e-05, was 1e-06"},
      {"initializer_range", 0.01, "initializer_range is absent, was 0.01"},
      {"tie_word_embeddings", true, "tie_word_embeddings is absent, was true"},
      {"pad_token_id", 7, "pad_token_id is absent, was 7"},
      {"rope_theta", 10000.000000000002, "rope_theta is 10000, was 10000.000000000002"},
      {"factor", 4.0, "rope_scaling.factor is 8, was 4"},
      {"low_freq_factor", 2.0, "rope_scaling.low_freq_factor is 1, was 2"},
      {"high_freq_factor", 8.0, "rope_scaling.high_freq_factor is 4, was 8"},
      {"original_max_position_embeddings", 64,
       "rope_scaling.original_max_position_embeddings is 32, was 64"},
      {"bos_token_id", 3, "bos_token_id is 1, was 3"},
      {"eos_token_id", OrderedJson::array({2, 3}), "eos_token_id is 2, was [2,3]"},
  };
  for (const auto& [field, value, line] : changes) {
    EXPECT_NE(refusal_of(model_with(field, value))
                  .find("run/config.json is another model than that of step "
                        "(step/config.json): " +
                        line + "; restore the file"),
              std::string::npos)
        << field << ": " << refusal_of(model_with(field, value));
  }
}

TEST(ModelFields, TheKindOfRotationIsOneOfThem) {
  OrderedJson json = OrderedJson::parse(kOurModel);
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  EXPECT_NE(refusal_of(json.dump())
                .find("rope_scaling.rope_type is \"llama3\", was \"linear\""),
            std::string::npos);
}

TEST(ModelFields, EachNumberOfYarnIsOneOfThem) {
  OrderedJson ours = OrderedJson::parse(kOurModel);
  ours["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", 8.0},
                          {"original_max_position_embeddings", 32},
                          {"attention_factor", 1.5}};
  const ModelConfig model = parse_model_config(ours.dump(), "run/config.json");
  const std::vector<std::tuple<std::string, OrderedJson, std::string>> changes = {
      {"beta_fast", 16, "rope_scaling.beta_fast is absent, was 16"},
      {"beta_slow", 2, "rope_scaling.beta_slow is absent, was 2"},
      {"truncate", false, "rope_scaling.truncate is absent, was false"},
      {"attention_factor", 2.0, "rope_scaling.attention_factor is 1.5, was 2"}};
  for (const auto& [field, value, line] : changes) {
    OrderedJson theirs = ours;
    theirs["rope_scaling"][field] = value;
    const std::string said = message_of<ConfigError>(
        [&] { check_same_model(model, theirs.dump(), "step/config.json", "step"); });
    EXPECT_NE(said.find(line + "; restore the file"), std::string::npos) << said;
  }
}

TEST(ModelFields, OtherSpellingsOfTheSameModelAreTheSame) {
  OrderedJson json = OrderedJson::parse(kOurModel);
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = 10000.0;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["head_dim"] = 16;
  json["dtype"] = "bfloat16";
  json["use_cache"] = false;
  EXPECT_NO_THROW(check_same_model(our_model(), json.dump(), "step/config.json", "step"));
}

TEST(ModelFields, AFieldThatIsNotReadOrChangesNothingIsNotNamed) {
  OrderedJson json = OrderedJson::parse(model_with("hidden_size", 128));
  json["head_dim"] = 32;  // hidden_size and the heads give the same
  json["dtype"] = "float16";
  EXPECT_NE(refusal_of(json.dump())
                .find("head_dim is absent, was 32; hidden_size is 64, "
                      "was 128; restore the file"),
            std::string::npos)
      << refusal_of(json.dump());
}

/// Two spellings of one model are equal, such as GPT-2's two names of a width.
TEST(ModelFields, FieldsThatChangeTheModelOnlyTogetherAreAllNamed) {
  const std::string one = R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 32,
    "n_embd": 32, "hidden_size": 32, "n_layer": 1, "n_head": 2})";
  OrderedJson other = OrderedJson::parse(one);
  other["n_embd"] = other["hidden_size"] = 64;
  std::vector<std::string> names;
  for (const ModelDifference& d : differing_fields(
           parse_model_config(one, "a"), parse_model_config(other.dump(), "b"))) {
    EXPECT_TRUE(d.of_result);
    names.push_back(d.field + " " + d.ours + " " + d.theirs);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"hidden_size 32 64", "n_embd 32 64"}));
}

TEST(ModelFields, WhatChangesTrainingAloneIsNotOfTheResult) {
  const std::string one = R"({"model_type": "bert", "vocab_size": 50, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32})";
  const std::vector<std::pair<std::string, OrderedJson>> changes = {
      {"architectures", {"BertForMaskedLM"}},
      {"attention_probs_dropout_prob", 0.2},
      {"eos_token_id", 3},
      {"hidden_dropout_prob", 0.2},
      {"initializer_range", 0.1},
      {"layer_norm_eps", 1e-5},
      {"pad_token_id", 3}};
  for (const auto& [field, value] : changes) {
    OrderedJson other = OrderedJson::parse(one);
    other[field] = value;
    const auto differences = differing_fields(parse_model_config(one, "a"),
                                              parse_model_config(other.dump(), "b"));
    ASSERT_EQ(differences.size(), 1U) << field;
    EXPECT_EQ(differences[0].field, field);
    EXPECT_EQ(differences[0].of_result, field == "layer_norm_eps") << field;
  }
}

/// An earlier version of the program read this run's file as another model.
TEST(ModelFields, WhatCannotBeReadAnyMoreIsReadAsTheRunsOverridesSay) {
  const std::string saved = model_with("is_causal", false);
  EXPECT_NE(refusal_of(saved).find("is_causal = false is not available"),
            std::string::npos);
  const std::vector<ModelOverride> causal = {{"is_causal", "true"}};
  EXPECT_NO_THROW(
      check_same_model(our_model(), saved, "step/config.json", "step", causal));
  // A file that can be read is compared without overrides.
  const std::vector<ModelOverride> theta = {{"rope_theta", "10000.0"}};
  EXPECT_NE(message_of<ConfigError>([&] {
              check_same_model(our_model(), model_with("rope_theta", 2e4),
                               "step/config.json", "step", theta);
            }).find("rope_theta is 10000, was 20000"),
            std::string::npos);
}

TEST(ModelFields, OneThatCannotBeReadIsASettingThatDoesNotFit) {
  EXPECT_NE(refusal_of(model_with("hidden_act", "relu")).find("cannot be compared"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul
