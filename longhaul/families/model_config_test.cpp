#include "longhaul/families/model_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/json.h"
#include "longhaul/families/decoder.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

fs::path fixture(const std::string& name) {
  return source_dir() / "tests/fixtures/configs" / (name + ".json");
}

ModelConfig load(const std::string& name) { return load_model_config(fixture(name)); }

constexpr std::string_view kGood = R"({
  "architectures": ["LlamaForCausalLM"],
  "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "torch_dtype": "bfloat16", "vocab_size": 100
})";

/// Returns kGood with the fields of `changes` replaced and the field `removed` left out.
std::string edited(const OrderedJson& changes, const std::string& removed = "") {
  OrderedJson json = OrderedJson::parse(kGood);
  for (const auto& [key, value] : changes.items()) json[key] = value;
  if (!removed.empty()) json.erase(removed);
  return json.dump();
}

ModelConfig parse(const std::string& json) { return parse_model_config(json, "c.json"); }

families::Attention attention_of(const ModelConfig& config) {
  return *families::attention_of(config.network.blocks[0]);
}

RopeConfig rope_of(const std::string& json,
                   std::span<const ModelOverride> overrides = {}) {
  return attention_of(parse_model_config(json, "c.json", overrides)).rotation->rope;
}

std::string refused(const OrderedJson& changes, const std::string& removed = "") {
  return message_of<InputError>([&] { parse(edited(changes, removed)); });
}

struct Published {
  const char* name;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t positions;
  bool tied;
  RopeConfig::Kind rope;
  double theta;
  double factor;
};

class PublishedForms : public testing::TestWithParam<Published> {};

TEST_P(PublishedForms, AreReadWithTheirOwnRope) {
  const Published& want = GetParam();
  const ModelConfig c = load(want.name);
  const families::Attention attention = attention_of(c);
  const RopeConfig& rope = attention.rotation->rope;
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.network.key_heads, want.kv_heads);
  EXPECT_EQ(attention.head_dim, want.head_dim);
  EXPECT_EQ(c.network.max_positions, want.positions);
  EXPECT_EQ(std::get<families::LanguageHead>(c.network.head).tied, want.tied);
  EXPECT_EQ(rope.kind, want.rope);
  EXPECT_EQ(rope.theta, want.theta);
  EXPECT_EQ(rope.factor, want.factor);
  if (want.rope == RopeConfig::Kind::Llama3) {
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_position_embeddings, 8192);
  }
}

using Kind = RopeConfig::Kind;
INSTANTIATE_TEST_SUITE_P(
    Files, PublishedForms,
    testing::Values(
        Published{"llama1-7b", 32, 128, 2048, false, Kind::Plain, 1e4, 1},
        Published{"llama2-7b", 32, 128, 4096, false, Kind::Plain, 1e4, 1},
        Published{"codellama-7b", 32, 128, 16384, false, Kind::Plain, 1e6, 1},
        Published{"llama3-8b", 8, 128, 8192, false, Kind::Plain, 5e5, 1},
        Published{"llama31-8b-instruct", 8, 128, 131072, false, Kind::Llama3, 5e5, 8},
        Published{"llama31-type-and-rope_type", 8, 128, 131072, false, Kind::Llama3, 5e5,
                  8},
        Published{"llama32-1b", 8, 64, 131072, true, Kind::Llama3, 5e5, 32},
        Published{"linear-scaling-old-type", 32, 128, 8192, false, Kind::Linear, 1e4, 2},
        Published{"transformers5-default", 32, 128, 2048, false, Kind::Plain, 1e4, 1},
        Published{"transformers5-llama3-scaling", 2, 16, 131072, false, Kind::Llama3, 5e5,
                  8}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(ModelConfig, ReadsTokenIdsAsANumberOrAList) {
  EXPECT_EQ(load("llama3-8b").eos_token_ids, std::vector<int64_t>{128001});
  EXPECT_EQ(load("llama31-8b-instruct").eos_token_ids,
            (std::vector<int64_t>{128001, 128008, 128009}));
  EXPECT_EQ(load("llama3-8b").bos_token_ids, std::vector<int64_t>{128000});
}

TEST(ModelConfig, NamesFieldsItDoesNotKnow) {
  EXPECT_EQ(load("llama1-7b").ignored_fields,
            std::vector<std::string>{"max_sequence_length"});
  EXPECT_TRUE(load("llama3-8b").ignored_fields.empty());
  EXPECT_TRUE(load("transformers5-default").ignored_fields.empty());
}

TEST(ModelConfig, ExportKeepsFormOrderAndKeysAndChangesTheDtypeOnly) {
  for (const char* name :
       {"llama1-7b", "llama2-7b", "llama31-8b-instruct", "linear-scaling-old-type"}) {
    std::string want = read_text(fixture(name));
    for (const char* dtype : {"float16", "bfloat16"}) {
      const std::string old = fmt::format("\"torch_dtype\": \"{}\"", dtype);
      if (want.find(old) != std::string::npos) {
        want.replace(want.find(old), old.size(), "\"torch_dtype\": \"float32\"");
        break;
      }
    }
    EXPECT_EQ(to_hf_config_json(load(name), "float32"), want) << name;
  }
  std::string new_form = read_text(fixture("transformers5-llama3-scaling"));
  const std::string old = "\"dtype\": \"bfloat16\"";
  new_form.replace(new_form.find(old), old.size(), "\"dtype\": \"float16\"");
  EXPECT_EQ(to_hf_config_json(load("transformers5-llama3-scaling"), "float16"), new_form);
}

void expect_words(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no '" << words << "' in: " << text;
}

/// Returns the text of kGood with one more member.
std::string with_member(const std::string& member) {
  return "{" + member + ", " + std::string(kGood.substr(1));
}

TEST(ModelConfig, NumbersThatJsonDoesNotHaveDoNoHarmWhereNobodyReadsThemAndAreExported) {
  for (const char* odd : {"NaN", "Infinity", "-Infinity", "1e999",
                          "1000000000000000019884624838656", "-99999999999999999999"}) {
    const ModelConfig config =
        parse(with_member(fmt::format(R"("a": {0}, "b": {{"c": [{0}, 1]}})", odd)));
    EXPECT_EQ(config.ignored_fields, (std::vector<std::string>{"a", "b"}));
    const std::string exported = to_hf_config_json(config, "float32");
    expect_words(exported, fmt::format("\"a\": {},\n", odd));
    expect_words(exported, fmt::format("\"c\": [\n      {},\n      1\n", odd));
    EXPECT_EQ(parse(exported).ignored_fields, config.ignored_fields);
  }
}

TEST(ModelConfigRefuses, NumbersThatJsonDoesNotHaveByTheNameOfTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {"head_dim", "expected an integer, found "},
      {"initializer_range", "expected a number, found "},
      {"tie_word_embeddings", "expected true or false, found "},
      {"hidden_act", "expected a string, found "},
      {"bos_token_id", "expected a token id or a list of them, found "},
      {"rope_scaling", "expected an object or null, found "},
      {"sliding_window", "= "},
      {"num_experts", "= "},
  };
  for (const auto& [field, problem] : cases) {
    for (const char* odd : {"NaN", "-Infinity", "100000000000000000000"}) {
      const std::string text = with_member(fmt::format(R"("{}": {})", field, odd));
      expect_words(message_of<InputError>([&] { parse(text); }),
                   fmt::format("c.json: {} {}{}", field, problem, odd));
    }
  }
}

TEST(ModelConfig, OverridesReachTheModelAndTheExport) {
  const std::vector<ModelOverride> overrides{{"num_hidden_layers", "4"},
                                             {"rope_theta", "20000.0"}};
  const ModelConfig old_form = load_model_config(fixture("llama2-7b"), overrides);
  EXPECT_EQ(old_form.description.num_blocks(), 4);
  EXPECT_EQ(attention_of(old_form).rotation->rope.theta, 20000.0);
  const ModelConfig new_form =
      load_model_config(fixture("transformers5-llama3-scaling"), overrides);
  EXPECT_EQ(attention_of(new_form).rotation->rope.theta, 20000.0);
  const Json exported = parse_json(to_hf_config_json(new_form, "float32"), "export");
  EXPECT_EQ(exported.at("num_hidden_layers"), 4);
  EXPECT_EQ(exported.at("rope_parameters").at("rope_theta"), 20000.0);
  EXPECT_FALSE(exported.contains("rope_theta"));
}

TEST(ModelConfigRefuses, AnOverrideOfAFieldThatNothingReads) {
  const std::vector<ModelOverride> overrides{{"num_layers", "4"}};
  EXPECT_EQ(
      message_of<ConfigError>([&] { parse_model_config(kGood, "c.json", overrides); }),
      "[model] model.override: num_layers is not a field that this program reads from "
      "c.json");
  const std::vector<ModelOverride> near{{"num_hiden_layers", "4"}};
  EXPECT_EQ(message_of<ConfigError>([&] { parse_model_config(kGood, "c.json", near); }),
            "[model] model.override: num_hiden_layers is not a field that this program "
            "reads from c.json; did you mean num_hidden_layers?");
}

TEST(ModelConfigRefuses, AMissingRopeThetaUnlessTheFilePredatesTheField) {
  EXPECT_EQ(
      refused({{"transformers_version", "4.40.0"}}, "rope_theta"),
      "[model] c.json: rope_theta is missing, and no default is safe (Llama 2: 10000, "
      "Llama 3: 500000); only files of transformers before 4.33 may leave it out, this "
      "one says transformers_version 4.40.0. Add it, or set model.override.rope_theta");
  EXPECT_NE(refused({}, "rope_theta").find("transformers_version (absent)"),
            std::string::npos);
  EXPECT_NE(refused({{"transformers_version", "4.33.0.dev0"}}, "rope_theta")
                .find("rope_theta is missing"),
            std::string::npos);
  EXPECT_EQ(rope_of(edited({{"transformers_version", "4.32.1"}}, "rope_theta")).theta,
            10000.0);
  const std::vector<ModelOverride> overrides{{"rope_theta", "500000"}};
  EXPECT_EQ(rope_of(edited({}, "rope_theta"), overrides).theta, 500000.0);
  EXPECT_NE(refused({{"rope_parameters", {{"rope_type", "default"}}}}, "rope_theta")
                .find("rope_theta is missing"),
            std::string::npos);
}

TEST(ModelConfigRefuses, RopeKindsThatAreNotBuiltByName) {
  for (const char* kind : {"dynamic", "longrope"}) {
    EXPECT_EQ(
        refused({{"rope_scaling", {{"rope_type", kind}, {"factor", 2.0}}}}),
        fmt::format("[model] c.json: rope_scaling.rope_type \"{}\" is not available; "
                    "supported: \"default\", \"linear\", \"llama3\", \"yarn\"",
                    kind));
  }
}

TEST(ModelConfigRefuses, RopeParametersThatAreMissingUnknownOrContradictory) {
  EXPECT_EQ(refused({{"rope_scaling", {{"type", "linear"}}}}),
            "[model] c.json: rope_scaling.factor is missing");
  EXPECT_EQ(refused({{"rope_scaling",
                      {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}}}}),
            "[model] c.json: rope_scaling.original_max_position_embeddings is missing");
  EXPECT_EQ(refused({{"rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}}}}),
            "[model] c.json: rope_scaling.rope_type \"llama3\" disagrees with type "
            "\"linear\"");
  EXPECT_EQ(
      refused({{"rope_parameters", {{"rope_theta", 5e5}}}}),
      "[model] c.json: rope_theta = 10000 disagrees with rope_parameters.rope_theta = "
      "500000; keep one of them");
  const OrderedJson scaled = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 32}};
  EXPECT_NO_THROW(parse(edited({{"rope_scaling", scaled}, {"rope_parameters", scaled}})));
  const std::vector<std::tuple<const char*, OrderedJson, const char*>> differing = {
      {"factor", 4.0, "factor is 8 by the first, which transformers takes, and 4 by"},
      {"low_freq_factor", 2.0, "low_freq_factor is 1 by"},
      {"high_freq_factor", 8.0, "high_freq_factor is 4 by"},
      {"original_max_position_embeddings", 64, "original_max_position_embeddings is 32"},
      {"rope_theta", 5e5,
       "rope_theta is 10000 by the first, which transformers takes, "
       "and 500000 by the second; keep one of them"},
  };
  for (const auto& [field, value, words] : differing) {
    OrderedJson other = scaled;
    other[field] = value;
    // transformers never looks for a base frequency in rope_parameters if rope_scaling is
    // there.
    EXPECT_NE(
        refused({{"rope_scaling", scaled}, {"rope_parameters", other}}, "rope_theta")
            .find(std::string("rope_scaling disagrees with rope_parameters: ") + words),
        std::string::npos)
        << field;
  }
  EXPECT_EQ(
      refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"beta_fast", 32}}}}),
      "[model] c.json: rope_scaling.beta_fast is not a parameter of this kind of RoPE; "
      "remove it or name the kind that uses it");
  EXPECT_EQ(refused({{"rope_scaling", 2.0}}),
            "[model] c.json: rope_scaling expected an object or null, found 2.0");
}

OrderedJson yarn_with(const OrderedJson& fields) {
  OrderedJson scaling = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  if (!fields.is_null()) scaling.update(fields);
  return {{"rope_scaling", scaling}};
}

/// The factors are those of transformers' _compute_yarn_parameters.
TEST(ModelConfig, ReadsYarnWithItsDefaultsAndMakesItsAttentionFactor) {
  const RopeConfig usual = rope_of(edited(yarn_with({})));
  EXPECT_EQ(usual.kind, Kind::Yarn);
  EXPECT_EQ(usual.factor, 4.0);
  EXPECT_EQ(usual.original_max_position_embeddings, 16);
  EXPECT_EQ(usual.beta_fast, 32.0);
  EXPECT_EQ(usual.beta_slow, 1.0);
  EXPECT_TRUE(usual.truncate);
  EXPECT_DOUBLE_EQ(usual.attention_factor, 1.138629436111989);
  const RopeConfig other =
      rope_of(edited(yarn_with({{"beta_fast", 8},
                                {"beta_slow", 2.0},
                                {"truncate", false},
                                {"attention_factor", 1.2079441541679836},
                                {"mscale", nullptr}})));
  EXPECT_EQ(other.beta_fast, 8.0);
  EXPECT_EQ(other.beta_slow, 2.0);
  EXPECT_FALSE(other.truncate);
  EXPECT_EQ(other.attention_factor, 1.2079441541679836);
  const OrderedJson scales = {{"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}};
  EXPECT_DOUBLE_EQ(rope_of(edited(yarn_with(scales))).attention_factor,
                   1.1557219901962608);
  EXPECT_EQ(rope_of(edited(yarn_with({{"factor", 1.0}}))).attention_factor, 1.0);
}

TEST(ModelConfigRefuses, NumbersOfYarnThatHaveNoMeaningOrNoEffect) {
  const std::vector<std::pair<OrderedJson, const char*>> cases = {
      {{{"factor", nullptr}}, "factor is missing"},
      {{{"factor", 0.5}}, "factor = 0.5 must be at least 1"},
      {{{"original_max_position_embeddings", nullptr}},
       "original_max_position_embeddings is missing"},
      {{{"beta_fast", 0}}, "beta_fast = 0 must be greater than 0"},
      {{{"beta_slow", -1.0}}, "beta_slow = -1 must be greater than 0"},
      {{{"beta_fast", 1}, {"beta_slow", 2}},
       "beta_fast = 1 must not be less than beta_slow = 2"},
      {{{"attention_factor", 0.0}}, "attention_factor = 0 must be greater than 0"},
      {{{"attention_factor", 1.0}, {"mscale", 1.0}},
       "mscale has no effect beside attention_factor, which transformers takes; keep one "
       "of them"},
      {{{"mscale", 1.0}},
       "mscale has no effect in transformers without mscale_all_dim; set both or none"},
      {{{"mscale_all_dim", 1.0}},
       "mscale_all_dim has no effect in transformers without mscale; set both or none"},
      {{{"mscale", 0.0}, {"mscale_all_dim", 1.0}}, "mscale = 0 must be greater than 0"},
      {{{"truncate", nullptr}},
       "truncate is null, which transformers takes for false; set true or false"},
      {{{"low_freq_factor", 1.0}},
       "low_freq_factor is not a parameter of this kind of RoPE; remove it or name the "
       "kind that uses it"},
  };
  for (const auto& [fields, words] : cases) {
    EXPECT_EQ(refused(yarn_with(fields)),
              std::string("[model] c.json: rope_scaling.") + words);
  }
  const std::vector<std::pair<const char*, OrderedJson>> others = {
      {"beta_fast", 3.0},
      {"beta_slow", 3.0},
      {"truncate", false},
      {"attention_factor", 3.0}};
  for (const auto& [field, value] : others) {
    OrderedJson both = yarn_with({});
    both["rope_parameters"] = both.at("rope_scaling");
    both["rope_parameters"][field] = value;
    EXPECT_NE(refused(both, "rope_theta")
                  .find(std::string("rope_scaling disagrees with rope_parameters: ") +
                        field + " is "),
              std::string::npos)
        << field;
  }
}

TEST(ModelConfigRefuses, OtherFamilies) {
  const std::string said = refused({{"model_type", "deepseek_v3"}});
  EXPECT_TRUE(said.starts_with(
      "[model] c.json: model_type \"deepseek_v3\" is not available yet; supported: "
      "\"llama\" (Llama 1, 2, 3, 3.1 and models of the same form), "))
      << said;
  for (const families::Family& family : families::all_families()) {
    EXPECT_NE(said.find('"' + family.model_type + '"'), std::string::npos);
  }
  EXPECT_EQ(refused({{"architectures", {"LlamaForSequenceClassification"}}}),
            "[model] c.json: architectures \"LlamaForSequenceClassification\" is not "
            "available; supported: \"LlamaForCausalLM\"");
}

struct Changed {
  const char* json;
  const char* message;
};

class ModelConfigRefusesField : public testing::TestWithParam<Changed> {};

TEST_P(ModelConfigRefusesField, NamingItsValue) {
  EXPECT_EQ(refused(OrderedJson::parse(GetParam().json)),
            std::string("[model] c.json: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ModelConfigRefusesField,
    testing::Values(
        Changed{R"({"attention_bias": true})",
                "attention_bias = true is not available yet: this program's Llama has no "
                "biases"},
        Changed{
            R"({"mlp_bias": true})",
            "mlp_bias = true is not available yet: this program's Llama has no biases"},
        Changed{R"({"hidden_act": "gelu"})",
                "hidden_act \"gelu\" is not available; supported: \"silu\""},
        Changed{
            R"({"pretraining_tp": 2})",
            "pretraining_tp = 2 makes transformers compute each product in 2 slices, "
            "which changes the rounding only; set model.override.pretraining_tp = 1 to "
            "train the same model without them"},
        Changed{
            R"({"sliding_window": 4096})",
            "sliding_window = 4096 is not available yet; remove it, or set it to null if "
            "the model does not need it"},
        Changed{R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})",
                "quantization_config says that the weights are quantised (gptq, 4 bits); "
                "train from the model that was quantised (bf16, fp16 or fp32)"},
        Changed{R"({"attention_dropout": 1.5})",
                "attention_dropout = 1.5 must be at least 0 and below 1"},
        Changed{R"({"partial_rotary_factor": 0.5})",
                "partial_rotary_factor = 0.5 is not available yet; only 1.0 is"},
        Changed{R"({"layer_types": ["full_attention", "sliding_attention"]})",
                "layer_types \"sliding_attention\" is not available yet; only "
                "\"full_attention\" is"},
        Changed{R"({"num_local_experts": 8})",
                "num_local_experts = 8 changes the mathematics and is not available"},
        Changed{R"({"per_layer_config": {"0": {"hidden_act": "gelu"}}})",
                "per_layer_config = {\"0\":{\"hidden_act\":\"gelu\"}} changes the "
                "mathematics and is not available"},
        Changed{R"({"is_causal": false})",
                "is_causal = false is not available: a decoder's tokens see only the "
                "tokens before them; remove it, or set model.override.is_causal = true"},
        Changed{R"({"is_causal": null})",
                "is_causal = null is not available: a decoder's tokens see only the "
                "tokens before them; remove it, or set model.override.is_causal = true"},
        Changed{R"({"pad_token_id": "<pad>"})",
                "pad_token_id expected an integer, found \"<pad>\""},
        Changed{R"({"hidden_size": "64"})",
                "hidden_size expected an integer, found \"64\""},
        Changed{R"({"hidden_size": 9e99})",
                "hidden_size expected an integer, found 9e+99"},
        Changed{R"({"hidden_size": 99999999})",
                "hidden_size = 99999999 must be from 1 to 4194304"},
        Changed{R"({"vocab_size": 18446744073709551615})",
                "vocab_size expected an integer, found 18446744073709551615"},
        Changed{R"({"num_hidden_layers": null})",
                "num_hidden_layers is null, which transformers refuses; give it a value, "
                "or set model.override.num_hidden_layers"},
        Changed{R"({"tie_word_embeddings": null})",
                "tie_word_embeddings is null, which transformers refuses; give it a "
                "value, or set model.override.tie_word_embeddings"},
        Changed{R"({"rope_theta": null})",
                "rope_theta is null, which transformers refuses; give it a number"},
        Changed{R"({"layer_types": ["full_attention"]})",
                "layer_types expected a list of num_hidden_layers = 2 names, found 1 "
                "name"},
        Changed{R"({"layer_types": "full_attention"})",
                "layer_types expected a list of num_hidden_layers = 2 names, found "
                "\"full_attention\""},
        Changed{R"({"hidden_size": 66})",
                "hidden_size = 66 does not divide by num_attention_heads = 4, and "
                "head_dim is "
                "not given"},
        Changed{R"({"head_dim": 15})", "head_dim = 15 must be even: RoPE turns pairs"},
        Changed{R"({"num_key_value_heads": 3})",
                "num_key_value_heads = 3 does not divide num_attention_heads = 4"},
        Changed{R"({"rms_norm_eps": null})",
                "rms_norm_eps is null, which transformers refuses; give it a value, or "
                "set model.override.rms_norm_eps"},
        Changed{R"({"tie_word_embeddings": 1})",
                "tie_word_embeddings expected true or false, found 1"},
        Changed{R"({"eos_token_id": 100})",
                "eos_token_id = 100 is not below vocab_size = 100"},
        Changed{R"({"eos_token_id": "</s>"})",
                "eos_token_id expected a token id or a list of them, found \"</s>\""}));

TEST(ModelConfig, ThePaddingRowIsThatOfTorchsEmbedding) {
  const auto row = [](const OrderedJson& id) {
    return parse(edited({{"pad_token_id", id}})).description.padding_row();
  };
  EXPECT_EQ(row(7), 7);
  EXPECT_EQ(row(0), 0);
  EXPECT_EQ(row(-1), 99);
  EXPECT_EQ(row(-100), 0);
  EXPECT_EQ(row(nullptr), std::nullopt);
  EXPECT_EQ(parse(edited({})).description.padding_row(), std::nullopt);
}

/// A model whose pad_token_id is no row of the embedding can be read, so that its
/// checkpoints can be exported.
TEST(ModelConfig, APaddingTokenThatIsNoneKeepsANewRunFromBeginning) {
  for (const int64_t id : {100, 32000, -101}) {
    const ModelConfig model = parse(edited({{"pad_token_id", id}}));
    EXPECT_EQ(model.description.padding_row(), std::nullopt);
    EXPECT_EQ(message_of<ConfigError>([&] { check_trainable(model); }),
              fmt::format("[model] c.json: pad_token_id = {} names no row of the "
                          "embedding, which has vocab_size = 100: transformers refuses "
                          "this model too; remove the field, or set "
                          "model.override.pad_token_id to a token",
                          id));
  }
  EXPECT_NO_THROW(check_trainable(parse(edited({{"pad_token_id", -100}}))));
}

/// If rope_scaling and the file outside of it both have a number of positions,
/// transformers takes the number outside.
TEST(ModelConfig, PositionsBeforeScalingMayStandOutsideOfTheObject) {
  const OrderedJson scaling = {{"rope_type", "llama3"},
                               {"factor", 8.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}};
  OrderedJson changes = {{"original_max_position_embeddings", 32},
                         {"rope_scaling", scaling}};
  EXPECT_EQ(rope_of(edited(changes)).original_max_position_embeddings, 32);
  changes["rope_scaling"]["original_max_position_embeddings"] = 32;
  EXPECT_EQ(rope_of(edited(changes)).original_max_position_embeddings, 32);
  changes["rope_scaling"]["original_max_position_embeddings"] = 64;
  EXPECT_EQ(
      refused(changes),
      "[model] c.json: rope_scaling.original_max_position_embeddings = 64 disagrees "
      "with original_max_position_embeddings = 32 outside of the object, the "
      "value that transformers takes; keep one of them");
  changes.erase("original_max_position_embeddings");
  EXPECT_EQ(rope_of(edited(changes)).original_max_position_embeddings, 64);
  const OrderedJson plain = {{"original_max_position_embeddings", 32}};
  EXPECT_TRUE(parse(edited(plain)).ignored_fields.empty());
}

TEST(ModelConfig, ReadsHeadDimThatIsNotHiddenOverHeads) {
  EXPECT_EQ(attention_of(parse(edited({{"head_dim", 32}}))).head_dim, 32);
  EXPECT_EQ(attention_of(parse(edited({{"head_dim", nullptr}}))).head_dim, 16);
}

TEST(ModelConfigRefuses, BrokenOrMissingFiles) {
  EXPECT_EQ(
      message_of<InputError>([] { load_model_config("/nowhere"); }),
      "[model] /nowhere: no such file or directory; expected a Hugging Face directory "
      "or its config.json");
  EXPECT_EQ(message_of<InputError>([] { parse("[1]"); }),
            "[model] c.json: expected a JSON object");
  const std::string twice = R"({"model_type": "llama", "model_type": "llama"})";
  EXPECT_EQ(message_of<InputError>([&] { parse(twice); }),
            "[json] c.json: the key \"model_type\" stands twice in one object");
  EXPECT_TRUE(message_of<InputError>([] {
                parse("{\"a\": ");
              }).starts_with("[json] c.json: not valid JSON at byte "));
}

}  // namespace
}  // namespace longhaul
