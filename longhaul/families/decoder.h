#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/network.h"
#include "longhaul/families/rope.h"
#include "longhaul/families/shared_fields.h"

namespace longhaul {

/// The settings of Llama, from whose network those of other decoders are made.
struct DecoderSettings : families::Outline {
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0.0;
  bool tie_word_embeddings = false;
  std::optional<int64_t> padding_row = {};  ///< padding row of the embedding
};

/// Returns a Llama of these settings and a plain rotation of base 10000, as if read from
/// a file.
ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

namespace families {

/// The values that a family's class in transformers takes for absent fields.
struct AbsentFields {
  /// Empty if an absent field means the same as null: as many key heads as query heads.
  std::optional<int64_t> num_key_value_heads = {};
  /// Empty if an absent field means the same as null: the hidden width divided by the
  /// number of query heads.
  std::optional<int64_t> head_dim = {};
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id = {};
  double rope_theta = 10000.0;
};

/// How a family of decoders differs from Llama.
struct DecoderFields {
  /// Names of fields beside those of every decoder, with spaces between them.
  std::string more = {};
  /// Names of fields that may be null beside those of every decoder (see Family).
  std::string nullable = {};
  AbsentFields absent = {};
  std::string tokenizer = {};  ///< see Family
  /// The name of the field with the feed-forward's activation, and the values that the
  /// program supports. An absent field means the first of these values.
  std::string activation = "hidden_act";
  std::vector<std::string> activations = {"silu", "swish"};
  /// layer_types may name kinds of layers, and rope_parameters has an object for each
  /// kind.
  bool kinds_of_layers = false;
  /// partial_rotary_factor may be below 1.
  bool parts_of_heads = false;
  /// Returns the rotation of every layer of Llama's network. If the function is empty,
  /// read_rope is called instead.
  std::function<RopeConfig(const ConfigFields& fields)> rotation = {};
  /// Reads and checks the fields that are the family's own, and changes Llama's network
  /// where the family's differs.
  std::function<void(const ConfigFields& fields, Network& network)> change;
};

/// Returns a family of decoders, whose network is Llama's with the sizes of config.json
/// and with the changes that `of` makes.
Family decoder_family(const std::string& model_type, const std::string& about,
                      const std::string& architectures, const DecoderFields& of);

/// A layer of Llama's network: x + attention(norm(x)), then x + feed_forward(norm(x)).
struct DecoderLayer {
  std::string name;  ///< what names of the layer begin with, such as "model.layers.3."
  Branch &first, &second;
  Attention& attention;
  FeedForward& feed_forward;  ///< must not be used once second.core is another kind
};

/// Returns the network of these settings, with the names and shapes of Hugging Face's
/// Llama.
Network decoder_network(const DecoderSettings& settings, const RopeConfig& rope,
                        int64_t vocab_size, int64_t max_positions);
/// Returns the layers of a network that decoder_network() made, so that a family can
/// change them.
std::vector<DecoderLayer> layers_of(Network& network);
/// Returns a norm called `name`, which otherwise equals the norm behind the last layer.
Norm norm_like_last(const Network& network, const std::string& name);
/// Gives attention norms of queries and keys that are like the norm behind the last
/// layer.
void add_norms_of_heads(Network& network, bool over_all_heads = false);

/// Reads attention_bias, which gives all of attention's projections biases.
void read_attention_bias(const ConfigFields& fields, Network& network);
/// Reads mlp_bias, which gives all of the feed-forward's projections biases.
void read_mlp_bias(const ConfigFields& fields, Network& network);
/// Reads sliding_window, which gives every layer a window unless it is null.
void read_window(const ConfigFields& fields, Network& network);
/// Reads layer_types and sliding_window, which say which layers have a window. If
/// layer_types is absent, `absent` returns whether layer i sees all positions.
void read_kinds_of_layers(const ConfigFields& fields, int64_t absent_window,
                          const std::function<bool(int64_t)>& absent, Network& network);

}  // namespace families
}  // namespace longhaul
