#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "longhaul/families/plausible_sizes.h"
#include "longhaul/families/shared_fields.h"

namespace longhaul::families {
namespace {

/// The settings of GPT-2 (Radford et al. 2019, "Language Models are Unsupervised
/// Multitask Learners"), which has learned positions, LayerNorm, biases, GELU, a tied
/// head and dropout.
struct Gpt2Settings : Outline {
  double layer_norm_epsilon = 1e-5;
  bool tie_word_embeddings = true;
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;  ///< dropout of the probabilities
  double residual_dropout = 0.1;   ///< dropout of what a block adds to the hidden states
};

constexpr const char* kGpt2Prefix = "transformer.";

/// Checks the fields of which the program supports only one value.
void check_gpt2_neutral(const ConfigFields& fields) {
  const std::string act = fields.text("activation_function").value_or("gelu_new");
  if (act != "gelu_new" && act != "gelu_pytorch_tanh") {
    fields.fail("activation_function", "\"{}\" is not available; supported: \"gelu_new\"",
                act);
  }
  if (!fields.boolean("scale_attn_weights").value_or(true)) {
    fields.fail("scale_attn_weights", "= false is not available");
  }
  fields.refuse_true({"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
                      "add_cross_attention"},
                     "is not available");
}

/// Reads a size under GPT-2's own name or under the name that other families use;
/// transformers treats both names as one field.
int64_t gpt2_size(const ConfigFields& fields, const char* own, const char* usual,
                  int64_t high) {
  const auto by_usual_name = fields.integer(usual, 1, high);
  if (!by_usual_name) return fields.required_integer(own, 1, high);
  const auto by_own_name = fields.integer(own, 1, high);
  if (by_own_name && *by_own_name != *by_usual_name) {
    fields.fail(
        usual,
        "= {} disagrees with {} = {}, another name of the same field; keep one of them",
        *by_usual_name, own, *by_own_name);
  }
  return *by_usual_name;
}

Gpt2Settings read_gpt2_settings(const ConfigFields& fields) {
  Gpt2Settings s;
  s.hidden_size = gpt2_size(fields, "n_embd", "hidden_size", kMaxWidth);
  s.num_hidden_layers = gpt2_size(fields, "n_layer", "num_hidden_layers", kMaxLayers);
  s.num_attention_heads = gpt2_size(fields, "n_head", "num_attention_heads", kMaxWidth);
  s.intermediate_size =
      fields.integer("n_inner", 1, kMaxWidth).value_or(4 * s.hidden_size);
  if (s.hidden_size % s.num_attention_heads != 0) {
    fields.fail("n_embd", "= {} does not divide by n_head = {}", s.hidden_size,
                s.num_attention_heads);
  }
  s.layer_norm_epsilon = fields.eps("layer_norm_epsilon", 1e-5);
  s.initializer_range = fields.initializer_range();
  s.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(true);
  s.embedding_dropout = fields.dropout("embd_pdrop", 0.1);
  s.attention_dropout = fields.dropout("attn_pdrop", 0.1);
  s.residual_dropout = fields.dropout("resid_pdrop", 0.1);
  return s;
}

/// Returns a projection that Conv1D stores as [in, out]: one of `parts` projections that
/// lie one after another in the stored tensor.
Linear gpt2_projection(const std::string& name, const std::string& stored, int64_t out,
                       int64_t part = 0, int64_t parts = 1) {
  return {.name = name,
          .out = out,
          .bias = true,
          .stored = StoredForm{stored, true, out * parts, out * part, out, out}};
}

Block gpt2_block(const Gpt2Settings& s, int64_t layer) {
  const std::string name = fmt::format("{}h.{}.", kGpt2Prefix, layer);
  const auto norm = [&](const char* end) {
    return Norm{Norm::Kind::Layer, name + end, s.layer_norm_epsilon};
  };
  // Radford et al. 2019, section 2.3, divide the initial weights of residual layers by
  // the square root of the number of these layers, which is two for each block.
  const auto residual = [&](Linear projection) {
    projection.stddev =
        s.initializer_range / std::sqrt(2.0 * static_cast<double>(s.num_hidden_layers));
    return projection;
  };
  const std::string attn = name + "attn.", mlp = name + "mlp.";
  const auto part = [&](const char* end, int64_t number) {
    return gpt2_projection(attn + end, attn + "c_attn", s.hidden_size, number, 3);
  };
  Attention attention;
  attention.query = part("q_proj", 0);
  attention.key = part("k_proj", 1);
  attention.value = part("v_proj", 2);
  attention.out =
      residual(gpt2_projection(attn + "o_proj", attn + "c_proj", s.hidden_size));
  attention.head_dim = s.hidden_size / s.num_attention_heads;
  attention.dropout = s.attention_dropout;
  const FeedForward feed_forward{
      .up = gpt2_projection(mlp + "up_proj", mlp + "c_fc", s.intermediate_size),
      .down = residual(gpt2_projection(mlp + "down_proj", mlp + "c_proj", s.hidden_size)),
      .activation = Activation::GeluTanh};
  const auto branch = [&](const char* before, Core core) {
    return Branch{
        .before = norm(before), .core = std::move(core), .dropout = s.residual_dropout};
  };
  return {{{branch("ln_1", attention)}}, {{branch("ln_2", feed_forward)}}};
}

Network gpt2_network(const Gpt2Settings& s, int64_t vocab_size, int64_t positions) {
  Network network = begin_network(s, s.num_attention_heads, positions);
  network.max_positions_key = "n_positions";
  network.optional_prefix = kGpt2Prefix;
  network.embedding.tokens = {"transformer.wte", vocab_size};
  network.embedding.positions = Table{"transformer.wpe", positions};
  network.embedding.dropout = s.embedding_dropout;
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    network.blocks.push_back(gpt2_block(s, i));
    for (const char* mask : {"bias", "masked_bias"}) {
      network.buffers.push_back(fmt::format("{}h.{}.attn.{}", kGpt2Prefix, i, mask));
    }
  }
  network.head =
      LanguageHead{{Norm::Kind::Layer, "transformer.ln_f", s.layer_norm_epsilon},
                   "lm_head",
                   s.tie_word_embeddings};
  return network;
}

void read_gpt2(const ConfigFields& fields, ModelConfig& config) {
  check_gpt2_neutral(fields);
  const Gpt2Settings settings = read_gpt2_settings(fields);
  // Learned positions are the rows of a table, so that the limit of a vocabulary applies.
  const int64_t positions =
      gpt2_size(fields, "n_positions", "max_position_embeddings", kMaxVocab);
  config.network = gpt2_network(settings, config.vocab_size, positions);
}

}  // namespace

Family gpt2_family() {
  return {"gpt2",
          "GPT-2",
          "GPT2LMHeadModel",
          "activation_function add_cross_attention attn_pdrop embd_pdrop "
          "initializer_range layer_norm_epsilon n_ctx n_embd n_head n_inner n_layer "
          "n_positions reorder_and_upcast_attn resid_pdrop "
          "scale_attn_by_inverse_layer_idx scale_attn_weights "
          // Other families use these names for n_embd, n_positions, n_head and n_layer.
          "hidden_size max_position_embeddings num_attention_heads "
          "num_hidden_layers "
          // These fields belong to other heads than that of a language model.
          "summary_activation summary_first_dropout summary_proj_to_labels "
          "summary_type summary_use_proj tie_word_embeddings",
          "n_ctx n_inner summary_activation",
          read_gpt2,
          "GPT2Tokenizer"};
}

}  // namespace longhaul::families
