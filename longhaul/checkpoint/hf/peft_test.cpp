#include "longhaul/checkpoint/hf/peft.h"

#include <cmath>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/comm/backend.h"
#include "longhaul/families/adapter.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/settings.h"

namespace longhaul::checkpoint {
namespace {

class Peft : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_model(base_, numbered); }

  /// Gives the weights values that differ.
  static void numbered(std::map<std::string, format::TensorSlice>& /*tensors*/,
                       std::map<std::string, std::vector<float>>& values) {
    for (auto& [name, own] : values) {
      for (size_t i = 0; i < own.size(); ++i) {
        own[i] = 0.1F * std::sin(static_cast<float>(i + name.size()));
      }
    }
  }

  ModelConfig adapted(const RunConfig& config) const {
    return load_run_model(config, base_ / "config.json");
  }

  static RunConfig settings(AdapterKind kind) {
    RunConfig config;
    config.adapter.kind = kind;
    config.adapter.rank = 2;
    config.adapter.alpha = 3.0;
    config.adapter.modules.entries = {"q_proj", "down_proj"};
    return config;
  }

  /// Returns the base with an adapter whose A is 1, 2, 3 ... and B 0.5.
  SharedSource source(const ModelConfig& model) const {
    const FirstValues first = [](const ParameterDescription& p, const auto& box,
                                 auto out) {
      const bool is_a = p.name.ends_with("lora_A.weight");
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = is_a ? static_cast<float>(i + 1) : 0.5F;
      }
      EXPECT_TRUE(is_a || box.name.ends_with("lora_B.weight")) << box.name;
    };
    return with_adapter(as_parameters(WeightsSource::open(base_), model.description),
                        {nullptr, first}, model.description);
  }

  static std::vector<float> values(const SharedSource& source, const std::string& name) {
    for (const format::TensorSlice& tensor : source->tensors()) {
      if (tensor.name != name) continue;
      std::vector<float> out(static_cast<size_t>(tensor.num_elements()));
      source->read(tensor, format::DType::F32, std::as_writable_bytes(std::span(out)));
      return out;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

  testing::TempDir dir_;
  fs::path base_ = dir_ / "base";
  fs::path adapter_ = dir_ / "adapter";
};

TEST_F(Peft, SettingsAreReadAsTheyWereWritten) {
  fs::create_directories(adapter_);
  for (const AdapterKind kind : {AdapterKind::Lora, AdapterKind::Dora}) {
    RunConfig config = settings(kind);
    config.adapter.rslora = kind == AdapterKind::Dora;
    config.adapter.save.entries = {"lm_head"};
    const std::string text = to_peft_config(config.adapter, adapted(config), "models/a");
    testing::write_file(adapter_ / kPeftConfig, text);
    const AdapterSection read = read_peft_config(adapter_);
    EXPECT_EQ(read.kind, kind);
    EXPECT_EQ(read.rank, 2);
    EXPECT_EQ(read.alpha, 3.0);
    EXPECT_EQ(read.rslora, kind == AdapterKind::Dora);
    const Json json = Json::parse(text);
    EXPECT_EQ(json["target_modules"], (Json{"down_proj", "q_proj"}));
    EXPECT_EQ(json["modules_to_save"], Json{"lm_head"});
    EXPECT_EQ(json["lora_alpha"].dump(), "3");
  }
}

TEST_F(Peft, EveryFieldThatChangesTheResultIsRefusedByName) {
  fs::create_directories(adapter_);
  const Json good =
      Json::parse(to_peft_config(settings(AdapterKind::Lora).adapter,
                                 adapted(settings(AdapterKind::Lora)), "models/a"));
  // The fields of LoraConfig in PEFT 0.21 that are not honoured, each switched on.
  const std::vector<std::pair<std::string, Json>> fields = {
      {"fan_in_fan_out", true},
      {"bias", "lora_only"},
      {"init_lora_weights", "pissa_niter_16"},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"q_proj", 4}}},
      {"megatron_config", {{"a", 1}}},
      {"trainable_token_indices", {1, 2}},
      {"loftq_config", {{"loftq_bits", 4}}},
      {"eva_config", {{"rho", 2.0}}},
      {"corda_config", {{"a", 1}}},
      {"lora_ga_config", {{"a", 1}}},
      {"velora_config", {{"a", 1}}},
      {"alora_invocation_tokens", {1}},
      {"use_qalora", true},
      {"monteclora_config", {{"a", 1}}},
      {"layer_replication", {{0, 1}}},
      {"lora_bias", true},
      {"use_bdlora", {{"a", 1}}},
      {"arrow_config", {{"a", 1}}},
      {"kasa_config", {{"a", 1}}},
      {"ensure_weight_tying", true},
      {"peft_type", "LOKR"},
      {"r", 0},
      {"lora_alpha", "8"},
      {"lora_alpha", -8.0},
      {"lora_alpha", 1e300},
      {"lora_alpha", 1e-300},
      {"lora_dropout", 1.0},
      {"lora_dropout", -3.0},
      {"use_dora", "yes"},
  };
  for (const auto& [field, value] : fields) {
    Json json = good;
    json[field] = value;
    testing::write_file(adapter_ / kPeftConfig, json.dump());
    EXPECT_HAS(message_of<InputError>([&] { (void)read_peft_config(adapter_); }),
               "adapter_config.json: " + field + " = ");
  }
  Json off = good;
  off["rank_pattern"] = off["target_parameters"] = Json::array();
  off["lora_bias"] = off["eva_config"] = nullptr;
  testing::write_file(adapter_ / kPeftConfig, off.dump());
  EXPECT_EQ(read_peft_config(adapter_).rank, 2);
  off["init_lora_weights"] = "eva";
  off["eva_config"] = {{"rho", 2.0}};
  testing::write_file(adapter_ / kPeftConfig, off.dump());
  EXPECT_EQ(read_peft_config(adapter_).rank, 2);
}

TEST_F(Peft, TensorsAreThoseOfTheModulesThatTheSettingsMean) {
  fs::create_directories(adapter_);
  const ModelConfig model = adapted(settings(AdapterKind::Lora));
  const SharedSource tensors = source(model);
  const Json good =
      Json::parse(to_peft_config(settings(AdapterKind::Lora).adapter, model, "models/a"));
  const auto read = [&](const Json& changes) {
    Json json = good;
    json.update(changes);
    testing::write_file(adapter_ / kPeftConfig, json.dump());
    return section_of_peft(adapter_, *tensors, load_model_config(base_));
  };
  const size_t layers = read(Json::object()).modules.entries.size();
  EXPECT_GE(layers, 2U);
  for (const Json& same : std::vector<Json>{
           {{"target_modules", ".*\\.(q|down)_proj"}},
           {{"target_modules", {"q_proj", "k_proj", "down_proj"}},
            {"exclude_modules", ".*k_proj"}},
           {{"layers_to_transform", {0, 1, 2, 3}}, {"layers_pattern", "layers"}}}) {
    EXPECT_EQ(read(same).modules.entries.size(), layers) << same;
  }
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"target_modules", {"q_proj", "down_proj", "v_proj"}}},
       "has no tensors for: model.layers.0.self_attn.v_proj"},
      {{{"target_parameters", {"mlp.experts.down_proj"}}},
       "target_parameters = [\"mlp.experts.down_proj\"] means tensors of experts, and "},
      {{{"target_modules", "all-linear"}}, "has no tensors for: "},
      {{{"target_modules", ".*proj"}}, "has no tensors for: "},
      {{{"target_modules", {"q_proj"}}}, "no low-rank part for "},
      {{{"exclude_modules", {"down_proj"}}}, "no low-rank part for "},
      {{{"layers_to_transform", 77}}, "no low-rank part for "},
      {{{"target_modules", "(?<!a)b"}}, "pattern that cannot be read"},
      {{{"target_modules", 3}}, "neither a text nor a list of names"},
  };
  for (const auto& [changes, words] : cases) {
    EXPECT_HAS(message_of<InputError>([&, &changes = changes] { (void)read(changes); }),
               words);
  }
}

/// Returns a model of two layers, each with four experts.
ModelConfig expert_model() {
  return parse_model_config(R"({
    "hidden_size": 8, "intermediate_size": 16, "max_position_embeddings": 64,
    "model_type": "mixtral", "num_attention_heads": 2, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 1, "num_local_experts": 4,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": null,
    "vocab_size": 13
  })",
                            "config.json");
}

TEST_F(Peft, PartsOfExpertsAreThoseThatTargetParametersMeans) {
  const std::string layer = "model.layers.0.mlp.experts";
  testing::write_file(adapter_ / kPeftConfig, "{}");
  testing::write_safetensors(adapter_ / kPeftWeights,
                             {kPeftPrefix + layer + ".base_layer.lora_A.weight",
                              kPeftPrefix + layer + ".lora_A.weight"},
                             {8, 8}, 0.0F);
  const SharedSource tensors = open_peft(adapter_);
  const auto read = [&](const Json& parameters) {
    const Json json = {{"peft_type", "LORA"},
                       {"target_modules", Json::array()},
                       {"target_parameters", parameters}};
    testing::write_file(adapter_ / kPeftConfig, json.dump());
    return section_of_peft(adapter_, *tensors, expert_model()).modules.entries;
  };
  EXPECT_EQ(read({layer + ".gate_up_proj", layer + ".down_proj"}),
            (std::vector<std::string>{layer + ".down_proj", layer + ".gate_up_proj"}));
  const std::vector<std::pair<Json, std::string>> cases = {
      {{"experts.gate_up_proj", "experts.down_proj"},
       "has no tensors for: model.layers.1.mlp.experts, "},
      {{layer + ".down_proj"}, "no low-rank part for 1 modules"},
      {{layer + ".up_proj"}, "only those of experts are, such as " + layer},
      {"experts.down_proj", "is no list of names"},
  };
  for (const auto& [parameters, words] : cases) {
    EXPECT_HAS(
        message_of<InputError>([&, &parameters = parameters] { (void)read(parameters); }),
        words);
  }
}

TEST_F(Peft, TensorsOfExpertsAreNamedAsPeftNamesThem) {
  const auto named = [&](std::vector<std::string> modules) {
    RunConfig config = settings(AdapterKind::Lora);
    config.adapter.modules.entries = std::move(modules);
    ModelConfig model = expert_model();
    add_adapter(config, model);
    return Json::parse(to_peft_config(config.adapter, model, "models/a"));
  };
  const Json all = named({"experts.down_proj", "experts.gate_up_proj"});
  EXPECT_EQ(all["target_parameters"],
            (Json{"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));
  EXPECT_EQ(all["target_modules"], Json::array());
  EXPECT_EQ(named({"q_proj", "layers.1.mlp.experts.down_proj"})["target_parameters"],
            Json{"model.layers.1.mlp.experts.down_proj"});
  EXPECT_FALSE(named({"q_proj"}).contains("target_parameters"));
}

TEST_F(Peft, MergedWeightsAreTheSumAndHaveTheTrainedLengths) {
  const std::string q = "model.layers.0.self_attn.q_proj.";
  for (const AdapterKind kind : {AdapterKind::Lora, AdapterKind::Dora}) {
    const ModelConfig model = adapted(settings(kind));
    const SharedSource all = source(model);
    const SharedSource whole = merged(all, model);
    const auto w = values(all, q + "weight"), a = values(all, q + "lora_A.weight");
    std::vector<float> right(w.size());
    for (size_t i = 0; i < 8; ++i) {
      double now = 0.0, then = 0.0;
      for (size_t k = 0; k < 8; ++k) {
        // Both elements of a row of B are 0.5, and the scale is 1.5.
        right[i * 8 + k] = w[i * 8 + k] + 1.5F * 0.5F * (a[k] + a[8 + k]);
        now += right[i * 8 + k] * right[i * 8 + k];
        then += w[i * 8 + k] * w[i * 8 + k];
      }
      if (kind == AdapterKind::Lora) continue;
      EXPECT_NEAR(values(all, q + "lora_magnitude_vector")[i], std::sqrt(then), 1e-6);
      for (size_t k = 0; k < 8; ++k) {
        right[i * 8 + k] *= static_cast<float>(std::sqrt(then / now));
      }
    }
    const auto found = values(whole, q + "weight");
    for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 1e-5);
    EXPECT_EQ(values(whole, "lm_head.weight"), values(all, "lm_head.weight"));
    EXPECT_NO_THROW(check_weights(whole, load_model_config(base_).description));
    // A box in the middle has the elements of the whole.
    auto box = format::TensorSlice::whole(q + "weight", {8, 8}, format::DType::F32);
    box.offset = {2, 3};
    box.extent = {3, 2};
    std::vector<float> part(6);
    whole->read(box, format::DType::F32, std::as_writable_bytes(std::span(part)));
    EXPECT_EQ(part[3], found[3 * 8 + 4]);
  }
}

TEST_F(Peft, TheHashOfABaseSeesOneElement) {
  const ModelConfig model = adapted(settings(AdapterKind::Lora));
  const auto hash = [&] {
    const auto base = as_parameters(WeightsSource::open(base_), model.description);
    return hash_of_base(*base, model.description, *comm::self_world("weights"));
  };
  const std::string before = hash();
  EXPECT_EQ(hash(), before);
  testing::write_model(base_, [](auto& tensors, auto& values) {
    numbered(tensors, values);
    values["model.norm.weight"][3] += 1e-6F;
  });
  EXPECT_NE(hash(), before);
}

}  // namespace
}  // namespace longhaul::checkpoint
