#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/network.h"
#include "longhaul/families/rope.h"

namespace longhaul {

/// The mixtures of experts of a decoder (families::Experts).
struct ExpertSettings {
  int64_t experts = 0;
  int64_t top_k = 0;  ///< experts that a token is sent to
  int64_t intermediate_size = 0;
  bool normalised = true;
  /// For each layer, whether it has a plain feed-forward. The list is empty if none has.
  std::vector<bool> dense_layers = {};
  double balance = 0.0;           ///< see Network::balance
  bool asks_for_balance = false;  ///< see Network::asks_for_balance
  /// Names of the mixture within its block, and of the projections within an expert.
  std::string layer = "mlp.";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// The settings of a decoder with rotary attention and gated feed-forwards, the form that
/// several families share with Llama, as config.json gives them.
struct DecoderSettings {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  std::optional<int64_t> padding_row = {};  ///< padding row of the embedding
  RopeConfig rope;

  // Settings that Llama does not have.

  std::optional<int64_t> sliding_window = {};  ///< positions that a token sees at most
  /// For each layer, whether its attention sees all positions in spite of the window. The
  /// list is empty if no layer does.
  std::vector<bool> full_layers = {};
  /// For each layer, whether its attention has no rotation. The list is empty if every
  /// layer has a rotation.
  std::vector<bool> unrotated_layers = {};
  /// The rotation of layers with a window, if it differs from `rope`.
  std::optional<RopeConfig> sliding_rope = {};
  bool head_biases = false;  ///< biases of queries, keys and values
  bool out_bias = false;     ///< a bias of attention's last projection
  bool mlp_biases = false;   ///< biases of all projections of the feed-forward
  bool head_norms = false;   ///< a norm over each head of queries and keys
  bool wide_norms = false;   ///< norms of queries and keys, each over all heads
  RmsForm norm_form = RmsForm::WeightAfterCast;
  bool norms_before = true;  ///< norms of the inputs of attention and feed-forward
  bool norms_after = false;  ///< norms of the results of attention and feed-forward
  Activation activation = Activation::Silu;
  std::optional<double> attention_scale = {};
  double attention_dropout = 0.0;  ///< dropout of the attention probabilities
  double embedding_scale = 1.0;
  /// The embedding scale is rounded to the compute dtype before the product.
  bool rounds_embedding_scale = false;
  double residual_scale = 1.0;
  double logits_divisor = 1.0;
  std::optional<ExpertSettings> experts = {};  ///< in the place of feed-forwards
};

/// Returns a Llama of these settings, as if read from a file.
ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

namespace families {

/// The values that a family's class in transformers takes for absent fields.
struct AbsentFields {
  /// Nothing if an absent field means what null means: as many heads as query heads.
  std::optional<int64_t> num_key_value_heads = {};
  /// Nothing if an absent field means what null means: the hidden width over the query
  /// heads.
  std::optional<int64_t> head_dim = {};
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id = {};
};

/// How a family of decoders differs from Llama in the fields of its config.json.
struct DecoderFields {
  /// Names of fields beside those of every decoder, with spaces between them.
  std::string more = {};
  /// Names of fields that may be null beside those of every decoder (see Family).
  std::string nullable = {};
  AbsentFields absent = {};
  /// The field of the feed-forward's activation, and the values that are built; the usual
  /// value first, which an absent field stands for.
  std::string activation = "hidden_act";
  std::vector<std::string> activations = {"silu", "swish"};
  /// layer_types may name kinds of layers, and rope_parameters has an object for each
  /// kind.
  bool kinds_of_layers = false;
};

/// A family of decoders. A subclass says how its models differ from Llama's.
class DecoderFamily : public Family {
 public:
  DecoderFamily(std::string model_type, std::string about, std::string_view architectures,
                DecoderFields fields);
  void read(const ConfigFields& fields, ModelConfig& config) const final;

 protected:
  virtual void read_rotation(const ConfigFields& fields,
                             DecoderSettings& settings) const {
    settings.rope = read_rope(fields);
  }
  /// Reads and checks the fields that are the family's own.
  virtual void read_more(const ConfigFields& fields, DecoderSettings& settings) const = 0;

 private:
  DecoderFields fields_;
};

/// Reads attention_bias, which gives all of attention's projections biases.
void read_attention_bias(const ConfigFields& fields, DecoderSettings& settings);
/// Reads layer_types and sliding_window, which say which layers have a window. Where
/// layer_types is absent, `absent` returns whether layer i sees all positions.
void read_kinds_of_layers(const ConfigFields& fields, int64_t absent_window,
                          const std::function<bool(int64_t)>& absent,
                          DecoderSettings& settings);

/// Returns the network of these settings, with the names and shapes of Hugging Face's
/// Llama.
Network decoder_network(const DecoderSettings& settings, int64_t vocab_size,
                        int64_t max_positions);

}  // namespace families
}  // namespace longhaul
