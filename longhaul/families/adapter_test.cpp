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

/// Returns a model whose layer 0 is plain, and whose layer 1 has 4 experts of 3 matrices.
ModelConfig expert_model() {
  return parse_model_config(R"({
    "decoder_sparse_step": 1, "head_dim": 16, "hidden_size": 64,
    "intermediate_size": 128, "max_position_embeddings": 256, "mlp_only_layers": [0],
    "model_type": "qwen3_moe", "moe_intermediate_size": 32, "norm_topk_prob": true,
    "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "vocab_size": 100
  })",
                            "config.json");
}

ModelConfig with_experts(const RunConfig& config) {
  ModelConfig model = expert_model();
  add_adapter(config, model);
  check_description(model.description);
  return model;
}

TEST(Adapter, SaysThatLayersOfExpertsAreLeftOut) {
  const auto left_out = [](const RunConfig& config) {
    return families::layers_left_out(config.adapter, with_experts(config).network);
  };
  for (const char* entry : {"gate_proj", "*.gate_proj", "down_proj"}) {
    EXPECT_HAS(message_of<ConfigError>([&] { (void)with_experts(settings({entry})); }),
               "name those \"mlp.experts.gate_up_proj\" and \"mlp.experts.down_proj\"");
  }
  EXPECT_EQ(left_out(settings({"q_proj", "model.layers.0.mlp.gate_proj"})), "");
  EXPECT_HAS(left_out(settings({kAllLinear})), "leaves out 12 layers of experts");
  EXPECT_HAS(left_out(settings({kAllLinear, "mlp.experts.down_proj"})),
             "leaves out 8 layers of experts");
}

TEST(Adapter, GivesEachExpertItsOwnMatricesAndItsGateAndUpOneA) {
  const std::vector<std::string> both = {"mlp.experts.gate_up_proj",
                                         "mlp.experts.down_proj"};
  const ModelConfig model = with_experts(settings(both));
  const std::string layer = "model.layers.1.mlp.experts.";
  const auto of = [&](const std::string& name) { return find(model, layer + name); };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(trained(model).size(), 4U * (1 + 2 + 2));
  EXPECT_EQ(of("2.gate_proj.lora_A.weight").shape, (Shape{4, 64}));
  EXPECT_EQ(of("2.up_proj.lora_B.weight").shape, (Shape{32, 4}));
  EXPECT_EQ(of("2.down_proj.lora_A.weight").shape, (Shape{4, 32}));
  EXPECT_EQ(of("2.down_proj.lora_B.weight").shape, (Shape{64, 4}));
  EXPECT_EQ(of("2.down_proj.lora_B.weight").expert, (ExpertNumber{2, 4}));
  // The half that the ranks of tp hold whole is summed.
  for (const char* whole : {"2.gate_proj.lora_A.weight", "2.down_proj.lora_B.weight"}) {
    EXPECT_EQ(of(whole).split->unit, format::ShardUnit::None) << whole;
  }
  EXPECT_EQ(of("2.up_proj.lora_B.weight").split, of("2.up_proj.weight").split);
  EXPECT_EQ(of("2.down_proj.lora_A.weight").split, of("2.down_proj.weight").split);
  // An adapter's files have the rows of A by expert, then rank, and the columns of B by
  // rank, then expert.
  const StoredForm a = *of("2.gate_proj.lora_A.weight").other_form;
  EXPECT_EQ(a.whole({4, 64}).global_shape, (Shape{16, 64}));
  EXPECT_EQ(a.row(1), 2 * 4 + 1);
  const StoredForm b = *of("2.up_proj.lora_B.weight").other_form;
  EXPECT_EQ(b.whole({32, 4}).global_shape, (Shape{64, 16}));
  EXPECT_EQ(b.row(3), 32 + 3);
  EXPECT_EQ(b.first_column, 2);
  EXPECT_EQ(b.column_period, 4);
  EXPECT_EQ(families::without_adapters(model.network), expert_model().network);
}

TEST(Adapter, NamesThePartsOfExpertsAsPeftDoes) {
  const std::string layer = "model.layers.1.mlp.experts.";
  const auto name = [&](const std::vector<std::string>& modules, const char* end) {
    return find(with_experts(settings(modules)), layer + end).other_form->name;
  };
  const char *inner = "0.gate_proj.lora_A.weight", *last = "0.down_proj.lora_B.weight";
  const std::vector<std::string> both = {"gate_up_proj", "*.experts.down_proj"};
  EXPECT_EQ(name(both, inner), layer + "base_layer.lora_A.weight");
  EXPECT_EQ(name(both, last), layer + "lora_B.weight");
  EXPECT_EQ(name({"gate_up_proj"}, inner), layer + "lora_A.weight");
  EXPECT_EQ(name({"experts.down_proj"}, last), layer + "lora_B.weight");
}

TEST(Adapter, CountsThePartsOfThoseExpertsThatATokenIsSentTo) {
  const ModelConfig base = expert_model();
  const ModelConfig model =
      with_experts(settings({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  // A token is sent to 2 of 4 experts.
  const int64_t each = 4 * 64 + 2 * 32 * 4 + 4 * 32 + 64 * 4;
  EXPECT_EQ(model.description.num_parameters() - base.description.num_parameters(),
            4 * each);
  EXPECT_EQ(model.description.num_active_parameters() -
                base.description.num_active_parameters(),
            2 * each);
  EXPECT_DOUBLE_EQ(model.description.units.at(2).work.frozen,
                   base.description.units.at(2).work.all_products());
}

TEST(Adapter, OfExpertsHasNeitherDropoutNorLengths) {
  const auto refusal = [](const RunConfig& config) {
    return message_of<ConfigError>([&] { (void)with_experts(config); });
  };
  RunConfig dropping = settings({"mlp.experts.down_proj"}), dora = dropping;
  dropping.adapter.dropout = 0.1;
  dora.adapter.kind = AdapterKind::Dora;
  EXPECT_HAS(refusal(dropping), "adapter.dropout = 0.1 is not available for experts");
  EXPECT_HAS(refusal(dora), "\"dora\" is not available for experts");
}

}  // namespace
}  // namespace longhaul
