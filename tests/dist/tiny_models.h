#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/families/model_config.h"
#include "tests/support/settings.h"

// A tiny model of every family, for tests that compare what is described with what runs.

namespace longhaul::testing {

/// Returns the table of families that tests share.
inline const OrderedJson& family_table() {
  static const OrderedJson table = parse_ordered_json(
      read_text(source_dir() / "tests/families.json"), "families.json");
  return table;
}

/// Returns a config.json whose sizes hardly divide each other, so that what is counted
/// twice or not at all shows. `tied` ties the head, except in BERT, where it adds the
/// head of next sentences. GPT-NeoX also gets its second form.
inline OrderedJson tiny_config(const std::string& model_type, bool tied = false) {
  const OrderedJson& family = family_table().at(model_type);
  const OrderedJson& tiny = family.at("tiny");
  OrderedJson json = {{"architectures", {family.at("architecture")}},
                      {"model_type", model_type}};
  if (family.at("decoder")) {
    json.update({{"sliding_window", nullptr},
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
                 {"initializer_range", 0.02}});
  }
  json.update(tiny.at("config"));
  json.update(
      tiny.value(tied ? "tied" : "untied", OrderedJson{{"tie_word_embeddings", tied}}));
  return json;
}

inline ModelConfig tiny_model(const std::string& model_type, bool tied = false) {
  return parse_model_config(tiny_config(model_type, tied).dump(), "config.json");
}

/// Returns every family with its form; a family with two forms is there twice.
inline std::vector<std::pair<std::string, bool>> tiny_models() {
  std::vector<std::pair<std::string, bool>> models;
  for (const auto& [model_type, family] : family_table().items()) {
    for (const OrderedJson& tied : family.at("tiny").at("forms")) {
      models.emplace_back(model_type, tied.get<bool>());
    }
  }
  return models;
}

}  // namespace longhaul::testing
