#include "longhaul/families/decoder.h"

#include "tests/support/settings.h"

namespace longhaul {
namespace {

// The published config.json of Phi-3-mini-4k-instruct.
constexpr std::string_view kPhi3 = R"({
  "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu",
  "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 32,
  "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
  "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.2", "use_cache": true, "vocab_size": 32064
})";
// The fields in which the published Phi-4-mini differs, without its longrope.
const OrderedJson kMini4 = {{"num_attention_heads", 24}, {"num_key_value_heads", 8},
                            {"vocab_size", 200064},      {"tie_word_embeddings", true},
                            {"sliding_window", 262144},  {"partial_rotary_factor", 0.75}};

ModelConfig parse_phi3(const OrderedJson& changes = OrderedJson::object()) {
  OrderedJson json = OrderedJson::parse(kPhi3);
  json.update(changes);
  return parse_model_config(json.dump(), "c.json");
}

std::string refused_phi3(const OrderedJson& changes) {
  return message_of<InputError>([&] { parse_phi3(changes); });
}

TEST(Phi3, PublishedModelsAreCountedAsPublished) {
  const ModelConfig mini = parse_phi3();
  EXPECT_EQ(mini.description.num_parameters(), 3'821'079'552);
  EXPECT_TRUE(mini.ignored_fields.empty());
  EXPECT_EQ(attention_of(mini.network.blocks[3])->window, 2047);
  const OrderedJson phi4 = {{"hidden_size", 5120},       {"intermediate_size", 17920},
                            {"num_hidden_layers", 40},   {"num_attention_heads", 40},
                            {"num_key_value_heads", 10}, {"vocab_size", 100352}};
  EXPECT_EQ(parse_phi3(phi4).description.num_parameters(), 14'659'507'200);
  EXPECT_TRUE(parse_phi3({{"resid_pdrop", 0.1}}).description.drops);
  EXPECT_EQ(parse_phi3(kMini4).description.num_parameters(), 3'836'021'760);
}

TEST(Phi3, FilesHoldProjectionsOfTwoSizesInOneTensor) {
  const ModelDescription model = parse_phi3(kMini4).description;
  std::vector<std::string> found;
  for (const ParameterDescription& p : model.units.at(32).parameters) {
    if (!p.stored) continue;
    found.push_back(fmt::format("{} {}-{}/{}", p.stored->name.substr(16),
                                p.stored->row(0), p.stored->row(p.shape[0] - 1),
                                p.stored->rows));
  }
  const std::string heads = "self_attn.qkv_proj.weight ",
                    mlp = "mlp.gate_up_proj.weight ";
  EXPECT_EQ(found,
            (std::vector<std::string>{heads + "0-3071/5120", heads + "3072-4095/5120",
                                      heads + "4096-5119/5120", mlp + "0-8191/16384",
                                      mlp + "8192-16383/16384"}));
}

TEST(Phi3, APartOfEachHeadIsRotatedWhereverTheNumberStands) {
  const auto rotated = [](const OrderedJson& changes) {
    return attention_of(parse_phi3(changes).network.blocks[0])->rotation->features;
  };
  EXPECT_EQ(rotated(kMini4), 96);
  OrderedJson inside = {
      {"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}};
  EXPECT_EQ(rotated(inside), 48);
  inside["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(refused_phi3(inside),
            "[model] c.json: rope_parameters.partial_rotary_factor (0.5) disagrees with "
            "another place (0.75); keep one of them");
  EXPECT_EQ(refused_phi3({{"partial_rotary_factor", 0.35}}),
            "[model] c.json: partial_rotary_factor = 0.35 of heads of 96 gives 33 "
            "features; the number of features must be even");
}

TEST(Phi3, WhatIsNotComputedIsRefusedByName) {
  EXPECT_EQ(refused_phi3({{"rope_scaling", {{"type", "longrope"}}}}).substr(0, 62),
            "[model] c.json: rope_scaling.rope_type \"longrope\" is not avail");
  EXPECT_EQ(refused_phi3({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}),
            "[model] c.json: rope_scaling has the kind \"yarn\", which transformers "
            "refuses for this family or takes for \"longrope\"; only \"default\" is "
            "available");
  EXPECT_EQ(refused_phi3({{"embd_pdrop", 0.1}}),
            "[model] c.json: embd_pdrop has no effect in transformers; set it to 0");
}

}  // namespace
}  // namespace longhaul
