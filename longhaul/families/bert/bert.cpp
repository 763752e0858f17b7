#include <fmt/format.h>

#include <utility>

#include "longhaul/families/plausible_sizes.h"
#include "longhaul/families/shared_fields.h"

namespace longhaul::families {
namespace {

/// The settings of BERT, which has attention both ways, learned positions and token
/// types, a LayerNorm after each residual sum, GELU and dropout. Its tied head is
/// computed for the masked tokens only.
struct BertSettings : Outline {
  int64_t type_vocab_size = 2;
  double layer_norm_eps = 1e-12;
  Activation activation = Activation::GeluExact;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  std::optional<int64_t> padding_row = 0;  ///< padding row of the table of words
  bool next_sentence = true;               ///< BertForPreTraining; false: BertForMaskedLM
};

constexpr const char* kPreTraining = "BertForPreTraining";

/// Checks the fields of which the program supports only one value.
void check_bert_neutral(const ConfigFields& fields) {
  const std::string kind = fields.text("position_embedding_type").value_or("absolute");
  if (kind != "absolute") {
    fields.fail("position_embedding_type",
                "\"{}\" is not available; supported: \"absolute\"", kind);
  }
  fields.refuse_true({"is_decoder", "add_cross_attention"}, "is not available");
  if (!fields.boolean("tie_word_embeddings").value_or(true)) {
    fields.fail("tie_word_embeddings", "= false is not available");
  }
}

/// Returns whether the model has the head of next sentences. A config.json that names no
/// architecture has both heads.
bool has_next_sentence(const ConfigFields& fields) {
  const OrderedJson* named = fields.find("architectures");
  if (named == nullptr || named->empty()) return true;
  return named->front() == kPreTraining;
}

BertSettings read_bert_settings(const ConfigFields& fields) {
  BertSettings s;
  read_outline_of_even_heads(fields, s);
  // A token type says which of the two texts of an example a token belongs to.
  s.type_vocab_size = fields.integer("type_vocab_size", 2, kMaxVocab).value_or(2);
  s.layer_norm_eps = fields.eps("layer_norm_eps", 1e-12);
  s.initializer_range = fields.initializer_range();
  s.activation = read_gelu(fields);
  s.hidden_dropout = fields.dropout("hidden_dropout_prob", 0.1);
  s.attention_dropout = fields.dropout("attention_probs_dropout_prob", 0.1);
  s.next_sentence = has_next_sentence(fields);
  return s;
}

Block bert_block(const BertSettings& s, int64_t layer) {
  const std::string name = fmt::format("bert.encoder.layer.{}.", layer);
  const auto projection = [&](const std::string& own, const std::string& stored,
                              int64_t out) {
    return Linear{name + own, out, true,
                  StoredForm{name + stored, false, out, 0, out, out}};
  };
  const auto norm = [&](const char* end) {
    return Norm{Norm::Kind::Layer, name + end, s.layer_norm_eps};
  };
  const int64_t H = s.hidden_size;
  Attention attention;
  attention.query = projection("attention.q_proj", "attention.self.query", H);
  attention.key = projection("attention.k_proj", "attention.self.key", H);
  attention.value = projection("attention.v_proj", "attention.self.value", H);
  attention.out = projection("attention.o_proj", "attention.output.dense", H);
  attention.head_dim = H / s.num_attention_heads;
  attention.causal = false;
  attention.dropout = s.attention_dropout;
  Branch first{.core = std::move(attention), .dropout = s.hidden_dropout};
  Branch second{.core = FeedForward{.up = projection("up_proj", "intermediate.dense",
                                                     s.intermediate_size),
                                    .down = projection("down_proj", "output.dense", H),
                                    .activation = s.activation},
                .dropout = s.hidden_dropout};
  return {{{std::move(first)}, norm("attention.output.LayerNorm")},
          {{std::move(second)}, norm("output.LayerNorm")}};
}

Network bert_network(const BertSettings& s, int64_t vocab_size, int64_t positions) {
  Network network = begin_network(s, s.num_attention_heads, positions);
  const std::string name = "bert.embeddings.";
  network.embedding = {
      .tokens = {name + "word_embeddings", vocab_size},
      .padding_row = s.padding_row,
      .positions = Table{name + "position_embeddings", positions},
      .types = Table{name + "token_type_embeddings", s.type_vocab_size},
      .norm = Norm{Norm::Kind::Layer, name + "LayerNorm", s.layer_norm_eps},
      .dropout = s.hidden_dropout};
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    network.blocks.push_back(bert_block(s, i));
  }
  network.head = BertHead{s.activation, s.layer_norm_eps, s.next_sentence};
  network.old_endings = {{".LayerNorm.gamma", ".LayerNorm.weight"},
                         {".LayerNorm.beta", ".LayerNorm.bias"}};
  network.buffers = {"bert.embeddings.position_ids", "cls.predictions.decoder.bias"};
  if (s.next_sentence) return network;
  // Published files hold the parameters of both heads, even if their config.json names
  // only the head of masked tokens.
  for (const std::string layer : {"bert.pooler.dense", "cls.seq_relationship"}) {
    network.buffers.push_back(layer + ".weight");
    network.buffers.push_back(layer + ".bias");
  }
  return network;
}

void read_bert(const ConfigFields& fields, ModelConfig& config) {
  check_bert_neutral(fields);
  BertSettings settings = read_bert_settings(fields);
  settings.padding_row = read_padding_row(fields, config, 0);
  // Learned positions are the rows of a table, so that the limit of a vocabulary applies.
  const int64_t positions =
      fields.required_integer("max_position_embeddings", 1, kMaxVocab);
  config.network = bert_network(settings, config.vocab_size, positions);
}

}  // namespace

Family bert_family() {
  return {"bert",
          "BERT",
          "BertForPreTraining BertForMaskedLM",
          "add_cross_attention attention_probs_dropout_prob hidden_act "
          "hidden_dropout_prob hidden_size initializer_range intermediate_size "
          "is_decoder layer_norm_eps max_position_embeddings num_attention_heads "
          "num_hidden_layers pad_token_id position_embedding_type "
          "tie_word_embeddings type_vocab_size "
          // Other heads read classifier_dropout. chunk_size_feed_forward does not
          // change results, only how they are computed.
          "chunk_size_feed_forward classifier_dropout",
          "classifier_dropout pad_token_id position_embedding_type",
          read_bert,
          "BertTokenizer"};
}

}  // namespace longhaul::families
