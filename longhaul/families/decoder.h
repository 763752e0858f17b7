#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/rope.h"
#include "longhaul/families/unit_maker.h"

namespace longhaul {

/// What config.json says of a decoder of rotary attention and gated feed-forwards: the
/// form that Llama has given to several families.
struct DecoderSettings : FamilySettings {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  std::optional<int64_t> padding_row = {};  ///< of the embedding
  RopeConfig rope;
};

namespace families {

/// What a family's class in transformers takes for a field that is absent, where not the
/// same as for null: then the query heads, or the hidden width over them.
struct AbsentSizes {
  std::optional<int64_t> num_key_value_heads;
  /// The class knows no null either.
  std::optional<int64_t> head_dim;
};

/// Fields of config.json that read_decoder reads.
std::vector<std::string> decoder_fields();
/// Reads and checks them. InputError for what no decoder of this form computes yet:
/// dropout, another activation, layers that differ, part of a head rotated.
/// Fills the positions of `config` too, and its training_problem.
void read_decoder(const ConfigFields& fields, ModelConfig& config,
                  DecoderSettings& settings, const AbsentSizes& absent = {});
/// For Family::settings.
std::vector<Field> decoder_settings(const DecoderSettings& settings);

/// Of a block, what the projections of queries and keys give.
struct Projected {
  Feature query, key;
};
/// Adds to block "model.layers.N.".
using MoreOfBlock = std::function<void(UnitMaker& unit, const std::string& block,
                                       const Projected& projected)>;

/// Names and shapes as Hugging Face's Llama has them.
ModelDescription describe_decoder(const DecoderSettings& settings, int64_t vocab_size,
                                  const MoreOfBlock& more = {});

}  // namespace families
}  // namespace longhaul
