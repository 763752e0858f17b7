#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/families/family.h"
#include "longhaul/families/model_config.h"

// A tiny model of every family, for tests that compare what is described with what runs.

namespace longhaul::testing {

/// Returns the fields of a decoder's config.json that other decoders do not have.
inline OrderedJson own_fields(const std::string& model_type) {
  OrderedJson json = OrderedJson::object();
  if (model_type == "gemma3_text") json["sliding_window_pattern"] = 2;
  if (model_type == "olmo3") {  // beside the rope_theta that full attention gets
    json["rope_parameters"] = {{"sliding_attention", {{"rope_theta", 5e5}}}};
  }
  if (model_type == "granite") {
    json = {{"attention_bias", true},
            {"mlp_bias", true},
            {"embedding_multiplier", 3.0},
            {"residual_multiplier", 0.3},
            {"logits_scaling", 2.0}};
  }
  if (model_type == "mixtral") {
    json = {{"num_local_experts", 5}, {"num_experts_per_tok", 2}};
  }
  if (model_type == "qwen3_moe") {
    json = {{"num_experts", 7},
            {"num_experts_per_tok", 3},
            {"moe_intermediate_size", 22},
            {"norm_topk_prob", true},
            {"mlp_only_layers", {2}}};
  }
  return json;
}

/// Returns a config.json whose sizes hardly divide each other, so that what is counted
/// twice or not at all shows. `tied` ties the head, except in BERT, where it adds the
/// head of next sentences. GPT-NeoX also gets its second form.
inline OrderedJson tiny_config(const std::string& model_type, bool tied = false) {
  if (model_type == "gpt2") {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", model_type},
            {"n_embd", 48},
            {"n_inner", 52},
            {"n_layer", 4},
            {"n_head", 6},
            {"vocab_size", 101},
            {"n_positions", 512},
            {"attn_pdrop", 0.1},
            {"embd_pdrop", 0.1},
            {"resid_pdrop", 0.1},
            {"tie_word_embeddings", tied}};
  }
  if (model_type == "bert") {
    return {{"architectures", {tied ? "BertForPreTraining" : "BertForMaskedLM"}},
            {"model_type", model_type},
            {"hidden_act", "gelu"},
            {"hidden_size", 48},
            {"intermediate_size", 52},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 6},
            {"vocab_size", 101},
            {"max_position_embeddings", 512},
            {"type_vocab_size", 2},
            {"hidden_dropout_prob", 0.1},
            {"attention_probs_dropout_prob", 0.1}};
  }
  if (model_type == "gpt_neox") {
    return {{"architectures", {"GPTNeoXForCausalLM"}},
            {"model_type", model_type},
            {"hidden_act", tied ? "gelu_new" : "gelu"},
            {"hidden_size", 48},
            {"intermediate_size", 52},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 6},
            {"vocab_size", 101},
            {"max_position_embeddings", 512},
            {"layer_norm_eps", 1e-5},
            {"rotary_emb_base", 10000},
            {"rotary_pct", 0.5},
            {"use_parallel_residual", !tied},
            {"tie_word_embeddings", tied}};
  }
  const bool windows =
      model_type == "mistral" || model_type == "gemma3_text" || model_type == "olmo3";
  OrderedJson json = {
      {"architectures", families::find_family(model_type)->architectures()},
      {"model_type", model_type},
      {"sliding_window", windows ? OrderedJson(11) : OrderedJson()},
      {"hidden_act", "silu"},
      {"hidden_size", 40},
      {"intermediate_size", 52},
      {"num_hidden_layers", 4},
      {"num_attention_heads", 6},
      {"num_key_value_heads", 2},
      {"head_dim", 8},
      {"vocab_size", 101},
      {"max_position_embeddings", 512},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", tied}};
  json.update(own_fields(model_type));
  return json;
}

inline ModelConfig tiny_model(const std::string& model_type, bool tied = false) {
  return parse_model_config(tiny_config(model_type, tied).dump(), "config.json");
}

/// Returns every family, Llama also with a tied head, and GPT-NeoX and BERT in both of
/// their forms.
inline std::vector<std::pair<std::string, bool>> tiny_models() {
  return {{"llama", false},   {"llama", true},     {"qwen2", false},
          {"qwen3", false},   {"mistral", false},  {"gemma3_text", true},
          {"olmo2", false},   {"olmo3", false},    {"granite", true},
          {"smollm3", false}, {"mixtral", false},  {"qwen3_moe", false},
          {"gpt2", true},     {"gpt_neox", false}, {"gpt_neox", true},
          {"bert", true},     {"bert", false}};
}

}  // namespace longhaul::testing
