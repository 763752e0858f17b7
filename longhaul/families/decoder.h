#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/network.h"
#include "longhaul/families/rope.h"

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
  std::optional<int64_t> sliding_window;    ///< positions that a token sees at most
  bool head_biases = false;                 ///< of queries, keys and values
  bool head_norms = false;                  ///< of each head of queries and keys
  RopeConfig rope;
};

/// The settings of a model of such a family; internal error for a model of another.
const DecoderSettings& decoder_settings(const ModelConfig& config);

/// A Llama of these settings, as if read from a file.
ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

namespace families {

/// What a family's class in transformers takes for a field that is absent, where not the
/// same as for null: then the query heads, or the hidden width over them.
struct AbsentSizes {
  std::optional<int64_t> num_key_value_heads;
  /// The class knows no null either.
  std::optional<int64_t> head_dim;
};

/// A family of decoders, of which one says how its models differ from Llama's.
class DecoderFamily : public Family {
 public:
  std::vector<std::string> fields() const final;
  void read(const ConfigFields& fields, ModelConfig& config) const final;
  std::vector<Field> settings(const ModelConfig& config) const final;

 protected:
  /// Fields beside those of every decoder.
  virtual std::vector<std::string> more_fields() const = 0;
  virtual AbsentSizes absent_sizes() const { return {}; }
  /// Reads and checks the fields that are the family's own.
  virtual void read_more(const ConfigFields& fields, DecoderSettings& settings) const = 0;
};

/// Names and shapes as Hugging Face's Llama has them.
Network decoder_network(const DecoderSettings& settings, int64_t vocab_size,
                        int64_t max_positions);

}  // namespace families
}  // namespace longhaul
