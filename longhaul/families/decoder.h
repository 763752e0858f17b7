#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/network.h"
#include "longhaul/families/rope.h"

namespace longhaul {

/// What config.json says of a decoder of rotary attention and gated feed-forwards: the
/// form that Llama has given to several families.
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
  std::optional<int64_t> padding_row = {};  ///< of the embedding
  RopeConfig rope;

  // What is not Llama's.

  std::optional<int64_t> sliding_window = {};  ///< positions that a token sees at most
  /// By layer: its attention sees all positions, without the window. Empty: no layer's.
  std::vector<bool> full_layers = {};
  std::vector<bool> unrotated_layers = {};  ///< by layer; empty: none
  /// The rotation of layers with a window, where it is another.
  std::optional<RopeConfig> sliding_rope = {};
  bool head_biases = false;  ///< of queries, keys and values
  bool out_bias = false;     ///< of attention's last projection
  bool mlp_biases = false;   ///< of all projections of the feed-forward
  bool head_norms = false;   ///< of each head of queries and keys
  bool wide_norms = false;   ///< of queries and keys, each over all heads
  RmsForm norm_form = RmsForm::WeightAfterCast;
  bool norms_before = true;  ///< of what attention and feed-forward are given
  bool norms_after = false;  ///< of their results
  Activation activation = Activation::Silu;
  std::optional<double> attention_scale = {};
  double attention_dropout = 0.0;  ///< of the probabilities
  double embedding_scale = 1.0;
  bool rounds_embedding_scale = false;  ///< to the compute dtype, before the product
  double residual_scale = 1.0;
  double logits_divisor = 1.0;
};

/// A Llama of these settings, as if read from a file.
ModelConfig make_llama(const DecoderSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

namespace families {

/// What a family's class in transformers takes for a field that is absent.
struct AbsentFields {
  /// Where not the same as for null, which stands for the query heads.
  std::optional<int64_t> num_key_value_heads = {};
  /// Where not the same as for null, which stands for the hidden width over the query
  /// heads. With a number here the class knows no null.
  std::optional<int64_t> head_dim = {};
  bool tie_word_embeddings = false;
  std::optional<int64_t> pad_token_id = {};
};

/// A family of decoders, of which one says how its models differ from Llama's.
class DecoderFamily : public Family {
 public:
  /// What Family says of the models.
  DecoderFamily(std::string model_type, std::string about,
                std::vector<std::string> architectures)
      : model_type_(std::move(model_type)),
        about_(std::move(about)),
        architectures_(std::move(architectures)) {}
  std::string model_type() const final { return model_type_; }
  std::string about() const final { return about_; }
  std::vector<std::string> architectures() const final { return architectures_; }
  std::vector<std::string> fields() const final;
  void read(const ConfigFields& fields, ModelConfig& config) const final;

 protected:
  /// Fields beside those of every decoder.
  virtual std::vector<std::string> more_fields() const = 0;
  virtual AbsentFields absent_fields() const { return {}; }
  /// The field of the feed-forward's activation, and the names that are built; the usual
  /// one first, which an absent field stands for.
  virtual std::string activation_field() const { return "hidden_act"; }
  virtual std::vector<std::string> activations() const { return {"silu", "swish"}; }
  /// Whether layer_types may say so, and rope_parameters has an object for each kind.
  virtual bool has_kinds_of_layers() const { return false; }
  virtual void read_rotation(const ConfigFields& fields,
                             DecoderSettings& settings) const {
    settings.rope = read_rope(fields);
  }
  /// Reads and checks the fields that are the family's own.
  virtual void read_more(const ConfigFields& fields, DecoderSettings& settings) const = 0;

 private:
  std::string model_type_, about_;
  std::vector<std::string> architectures_;
};

/// attention_bias: biases of all of attention's projections.
void read_attention_bias(const ConfigFields& fields, DecoderSettings& settings);
/// layer_types and sliding_window: which layers have a window. `absent` makes the list
/// where the field is absent: whether layer i sees all positions.
void read_kinds_of_layers(const ConfigFields& fields, int64_t absent_window,
                          const std::function<bool(int64_t)>& absent,
                          DecoderSettings& settings);

/// Names and shapes as Hugging Face's Llama has them.
Network decoder_network(const DecoderSettings& settings, int64_t vocab_size,
                        int64_t max_positions);

}  // namespace families
}  // namespace longhaul
