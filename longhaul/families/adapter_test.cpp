#include "longhaul/families/adapter.h"

#include <algorithm>

#include "longhaul/base/json.h"
#include "longhaul/families/decoder.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

ModelConfig base_model() {
  return parse_model_config(R"({
    "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 256,
    "model_type": "qwen2", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "vocab_size": 100
  })",
                            "config.json");
}

RunConfig settings(std::vector<std::string> modules, std::vector<std::string> save = {}) {
  RunConfig config;
  config.adapter.kind = AdapterKind::Lora;
  config.adapter.rank = 4;
  config.adapter.alpha = 6.0;
  config.adapter.modules.entries = std::move(modules);
  config.adapter.save.entries = std::move(save);
  return config;
}

ModelConfig adapted(const RunConfig& config) {
  ModelConfig model = base_model();
  add_adapter(config, model);
  check_description(model.description);
  return model;
}

std::vector<std::string> trained(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const format::TensorSlice& tensor : model.description.saved_tensors()) {
    names.push_back(tensor.name);
  }
  return names;
}

const ParameterDescription& find(const ModelConfig& model, const std::string& name) {
  for (const ParameterDescription& p : model.description.parameters()) {
    if (p.name == name) return p;
  }
  throw std::out_of_range(name);
}

TEST(Adapter, TrainsTwoMatricesBesideEachLayerThatIsMeant) {
  const ModelConfig model = adapted(settings({"q_proj", "model.layers.1.mlp.*"}));
  const std::string q = "model.layers.0.self_attn.q_proj.lora_";
  const auto names = trained(model);
  EXPECT_EQ(std::ranges::count(names, q + "A.weight"), 1);
  EXPECT_EQ(names.size(), 2 * (2 + 3));
  EXPECT_EQ(find(model, q + "A.weight").shape, (std::vector<int64_t>{4, 64}));
  EXPECT_EQ(find(model, q + "B.weight").shape, (std::vector<int64_t>{64, 4}));
  EXPECT_EQ(find(model, q + "B.weight").init.kind, Init::Kind::Zeros);
  EXPECT_EQ(find(model, q + "A.weight").init.kind, Init::Kind::Uniform);
  EXPECT_DOUBLE_EQ(find(model, q + "A.weight").init.stddev, 1.0 / 8.0);
  EXPECT_FALSE(find(model, "model.layers.0.self_attn.q_proj.weight").trained);
  EXPECT_FALSE(find(model, "model.layers.0.self_attn.q_proj.bias").trained);
  EXPECT_TRUE(model.description.has_base);
  EXPECT_EQ(families::without_adapters(model.network), base_model().network);
}

TEST(Adapter, SplitsAsItsLayerDoesAndHoldsTheOtherHalfWhole) {
  const ModelConfig model = adapted(settings({kAllLinear}));
  const auto split = [&](const std::string& name) { return *find(model, name).split; };
  const std::string attention = "model.layers.0.self_attn.";
  for (const std::string layer : {"k_proj", "o_proj"}) {
    const std::string name = attention + layer;
    const bool by_rows = layer == "k_proj";
    const auto whole = by_rows ? ".lora_A.weight" : ".lora_B.weight";
    const auto cut = by_rows ? ".lora_B.weight" : ".lora_A.weight";
    EXPECT_EQ(split(name + whole).unit, format::ShardUnit::None);
    EXPECT_EQ(split(name + cut), split(name + ".weight"));
  }
}

TEST(Adapter, ScalesByAlphaOverTheRankOrItsRoot) {
  RunConfig config = settings({"q_proj"});
  const auto scale = [&] {
    return std::get<families::Attention>(
               adapted(config).network.blocks[0][0].branches[0].core)
        .query.adapter->scale;
  };
  EXPECT_DOUBLE_EQ(scale(), 1.5);
  config.adapter.rslora = true;
  EXPECT_DOUBLE_EQ(scale(), 3.0);
}

TEST(Adapter, CountsLessWorkWhereWeightsHaveNoGradient) {
  const ModelConfig base = base_model(), model = adapted(settings({"q_proj"}));
  const double part = model.description.flops_per_token(16).products /
                      base.description.flops_per_token(16).products;
  EXPECT_GT(part, 2.0 / 3.0);
  EXPECT_LT(part, 0.75);
}

TEST(Adapter, TrainsModulesWholeByName) {
  const ModelConfig model = adapted(settings({"q_proj"}, {"lm_head", "model.norm"}));
  const auto names = trained(model);
  EXPECT_EQ(std::ranges::count(names, "lm_head.weight"), 1);
  EXPECT_EQ(std::ranges::count(names, "model.norm.weight"), 1);
  EXPECT_EQ(families::modules_trained_whole(model.description),
            (std::vector<std::string>{"lm_head", "model.norm"}));
}

TEST(Adapter, RefusesNamesThatMeanNothing) {
  const auto refusal = [](const RunConfig& config) {
    return message_of<ConfigError>([&] { (void)adapted(config); });
  };
  EXPECT_HAS(refusal(settings({"query"})),
             "adapter.modules: \"query\" matches no module; there are 14 modules");
  EXPECT_HAS(refusal(settings({"query"})), "down_proj, gate_proj, k_proj, o_proj");
  EXPECT_HAS(refusal(settings({"proj"})), "matches no module");
  EXPECT_HAS(refusal(settings({"q_proj"}, {"norms"})), "\"norms\" matches no module");
  EXPECT_HAS(refusal(settings({"q_proj"}, {"q_proj"})), "both mean");
}

TEST(Adapter, SaysThatLayersOfExpertsAreLeftOut) {
  // Layer 0 is plain, and layer 1 has 4 experts of 3 matrices.
  const ModelConfig base = parse_model_config(R"({
    "decoder_sparse_step": 1, "head_dim": 16, "hidden_size": 64,
    "intermediate_size": 128, "max_position_embeddings": 256, "mlp_only_layers": [0],
    "model_type": "qwen3_moe", "moe_intermediate_size": 32, "norm_topk_prob": true,
    "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "vocab_size": 100
  })",
                                              "config.json");
  const auto adapt = [&](const RunConfig& config) {
    ModelConfig model = base;
    add_adapter(config, model);
    return families::layers_left_out(config.adapter, model.network);
  };
  for (const char* entry : {"gate_proj", "*.gate_proj"}) {
    EXPECT_HAS(message_of<ConfigError>([&] { (void)adapt(settings({entry})); }),
               "experts take no adapter yet");
  }
  EXPECT_EQ(adapt(settings({"q_proj", "model.layers.0.mlp.gate_proj"})), "");
  EXPECT_HAS(adapt(settings({kAllLinear})), "leaves out 12 layers of experts");
}

}  // namespace
}  // namespace longhaul
