#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/family.h"
#include "longhaul/families/plausible_sizes.h"
#include "longhaul/families/rope.h"
#include "longhaul/families/shared_fields.h"

namespace longhaul::families {
namespace {

/// The settings of GPT-NeoX and Pythia, which rotate a part of each head and have
/// LayerNorm, biases and GELU. Attention and feed-forward run side by side or one after
/// the other.
struct GptNeoxSettings : Outline {
  double layer_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  bool parallel_residual = true;
  bool attention_bias = true;
  Activation activation = Activation::GeluExact;
  Rotation rotation;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

/// The objects that may hold the rotation. transformers reads only the first that is not
/// empty.
constexpr const char* kObjects[] = {"rope_scaling", "rope_parameters"};

/// A number of the rotation: its name inside of the objects, its older name outside of
/// the objects, and the value that the class in transformers takes if both are absent. A
/// number outside of the objects under its inner name is not read there.
struct RotationNumber {
  const char* inside;
  const char* outside;
  double absent;
};

struct Place {
  std::string name;
  double value = 0.0;
};

/// Returns every field that holds the number, first the one that transformers reads. Sets
/// `taken` if transformers reads one of these fields.
std::vector<Place> places_of(const ConfigFields& fields, const RotationNumber& number,
                             bool& taken) {
  std::vector<Place> places;
  const auto add = [&](const ConfigFields& from, const char* key,
                       const std::string& name) {
    if (const auto value = from.number(key)) places.push_back({name, *value});
    return from.find(key) != nullptr;
  };
  std::vector<Place> passed_over;
  bool first = true;
  for (const char* object : kObjects) {
    const OrderedJson* json = fields.find(object);
    if (json == nullptr || !json->is_object() || json->empty()) continue;
    const std::string prefix = fmt::format("{}.", object);
    if (json->contains(number.inside) && (*json)[number.inside].is_null()) {
      fields.fail(prefix + number.inside,
                  "is null, which transformers refuses; give it a number");
    }
    const bool there = add(ConfigFields(*json, fields.file(), prefix), number.inside,
                           prefix + number.inside);
    if (there && !first) {
      passed_over.push_back(places.back());
      places.pop_back();
    }
    first = false;
  }
  add(fields, number.outside, number.outside);
  taken = !places.empty();
  places.insert(places.end(), passed_over.begin(), passed_over.end());
  add(fields, number.inside, number.inside);
  return places;
}

/// Returns the number that transformers takes. Throws InputError if another field
/// disagrees, or if the number stands nowhere.
double one_number(const ConfigFields& fields, const RotationNumber& number) {
  bool taken = false;
  const std::vector<Place> places = places_of(fields, number, taken);
  if (!taken && fields.object().contains(number.outside)) {
    fields.fail(number.outside, "is null, which transformers refuses; give it a number");
  }
  if (places.empty()) {
    fields.fail(number.outside,
                "is missing, and so is rope_parameters.{}; add one of them",
                number.inside);
  }
  const double value = taken ? places.front().value : number.absent;
  for (const Place& place : places) {
    if (place.value == value) continue;
    if (taken) {
      fields.fail(place.name,
                  "= {} disagrees with {} = {}, the value that transformers takes; keep "
                  "one of them",
                  place.value, places.front().name, value);
    }
    const bool inside = place.name != number.inside;
    fields.fail(place.name,
                "= {} has no effect in transformers{}, which takes {} where {} is "
                "absent; set {} instead",
                place.value, inside ? " beside rope_scaling" : "", value, number.outside,
                number.outside);
  }
  return value;
}

/// Reads the rotation from rotary_emb_base and rotary_pct, or from rope_theta and
/// partial_rotary_factor of rope_parameters (or of rope_scaling), as transformers 5
/// writes them. Throws InputError for a missing number, for places that disagree, and for
/// what read_rope refuses.
Rotation read_neox_rotation(const ConfigFields& fields, int64_t head_dim) {
  const double theta = one_number(fields, {"rope_theta", "rotary_emb_base", 10000.0});
  const double part = one_number(fields, {"partial_rotary_factor", "rotary_pct", 0.25});
  // The object `usual` has the form of config.json for families that rotate whole heads,
  // which read_rope expects.
  OrderedJson usual = {{"rope_theta", theta}};
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (fields.object().contains(kOriginal)) usual[kOriginal] = fields.object()[kOriginal];
  for (const char* object : kObjects) {
    const OrderedJson* json = fields.find(object);
    if (json == nullptr) continue;
    usual[object] = *json;
    if (!json->is_object()) continue;
    usual[object].erase("partial_rotary_factor");
    usual[object].erase("rope_theta");
  }
  return {read_rope(ConfigFields(usual, fields.file())),
          rotated_features(fields, "rotary_pct (partial_rotary_factor)", part, head_dim)};
}

void check_no_neox_dropout(const ConfigFields& fields) {
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    const double probability = fields.number(key).value_or(0.0);
    if (probability == 0.0) continue;
    fields.fail(key,
                "= {}: dropout is not available yet; set model.override.{} = 0.0 to "
                "train without it",
                probability, key);
  }
}

/// Checks head_dim unless it is null or 0. transformers uses it only for the rotation.
void check_neox_head_dim(const ConfigFields& fields, int64_t head_dim) {
  const auto given = fields.integer("head_dim", 0, kMaxWidth);
  if (given.value_or(0) == 0 || *given == head_dim) return;
  fields.fail("head_dim",
              "= {} is not available: heads are {} wide, which is hidden_size over "
              "num_attention_heads; remove it",
              *given, head_dim);
}

GptNeoxSettings read_neox_settings(const ConfigFields& fields) {
  check_no_neox_dropout(fields);
  GptNeoxSettings s;
  read_outline_of_even_heads(fields, s);
  check_neox_head_dim(fields, s.head_dim());
  s.layer_norm_eps = fields.eps("layer_norm_eps");
  s.initializer_range = fields.initializer_range();
  s.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  // Files of the first versions have none of these fields and mean the defaults.
  s.parallel_residual = fields.boolean("use_parallel_residual").value_or(true);
  s.attention_bias = fields.boolean("attention_bias").value_or(true);
  s.activation = read_gelu(fields);
  s.rotation = read_neox_rotation(fields, s.head_dim());
  return s;
}

Linear neox_projection(const std::string& name, const std::string& stored, int64_t out,
                       bool bias) {
  return {name, out, bias, StoredForm{stored, false, out, 0, out, out}};
}

Attention neox_attention(const GptNeoxSettings& s, const std::string& name) {
  // In the files the queries, keys and values of one head lie one after another, then
  // those of the next head.
  const auto part = [&](const char* end, int64_t number) {
    Linear out = neox_projection(name + end, name + "query_key_value", s.hidden_size,
                                 s.attention_bias);
    out.stored->rows = 3 * s.hidden_size;
    out.stored->first = number * s.head_dim();
    out.stored->block = s.head_dim();
    out.stored->period = 3 * s.head_dim();
    return out;
  };
  Attention attention;
  attention.query = part("q_proj", 0);
  attention.key = part("k_proj", 1);
  attention.value = part("v_proj", 2);
  attention.out =
      neox_projection(name + "o_proj", name + "dense", s.hidden_size, s.attention_bias);
  attention.head_dim = s.head_dim();
  attention.rotation = s.rotation;
  return attention;
}

Block neox_block(const GptNeoxSettings& s, int64_t layer) {
  const std::string name = fmt::format("gpt_neox.layers.{}.", layer);
  const std::string mlp = name + "mlp.";
  const auto norm = [&](const char* end) {
    return Norm{Norm::Kind::Layer, name + end, s.layer_norm_eps};
  };
  Branch first{.before = norm("input_layernorm"),
               .core = neox_attention(s, name + "attention.")};
  Branch second{.before = norm("post_attention_layernorm"),
                .core = FeedForward{
                    .up = neox_projection(mlp + "up_proj", mlp + "dense_h_to_4h",
                                          s.intermediate_size, true),
                    .down = neox_projection(mlp + "down_proj", mlp + "dense_4h_to_h",
                                            s.hidden_size, true),
                    .activation = s.activation}};
  if (s.parallel_residual) return {{{std::move(first), std::move(second)}}};
  return {{{std::move(first)}}, {{std::move(second)}}};
}

Network neox_network(const GptNeoxSettings& s, int64_t vocab_size, int64_t positions) {
  Network network = begin_network(s, s.num_attention_heads, positions);
  network.embedding.tokens = {"gpt_neox.embed_in", vocab_size};
  for (int64_t i = 0; i < s.num_hidden_layers; ++i) {
    network.blocks.push_back(neox_block(s, i));
    for (const char* table : {"bias", "masked_bias", "rotary_emb.inv_freq"}) {
      network.buffers.push_back(fmt::format("gpt_neox.layers.{}.attention.{}", i, table));
    }
  }
  network.head =
      LanguageHead{{Norm::Kind::Layer, "gpt_neox.final_layer_norm", s.layer_norm_eps},
                   "embed_out",
                   s.tie_word_embeddings};
  return network;
}

void read_gpt_neox(const ConfigFields& fields, ModelConfig& config) {
  const GptNeoxSettings settings = read_neox_settings(fields);
  const int64_t positions =
      fields.required_integer("max_position_embeddings", 1, kMaxPositions);
  config.network = neox_network(settings, config.vocab_size, positions);
}

}  // namespace

Family gpt_neox_family() {
  return {"gpt_neox",
          "GPT-NeoX, Pythia",
          "GPTNeoXForCausalLM",
          "attention_bias attention_dropout head_dim hidden_act hidden_dropout "
          "hidden_size initializer_range intermediate_size layer_norm_eps "
          "max_position_embeddings num_attention_heads num_hidden_layers "
          "original_max_position_embeddings partial_rotary_factor rope_parameters "
          "rope_scaling rope_theta rotary_emb_base rotary_pct tie_word_embeddings "
          "use_parallel_residual "
          // These fields belong to other heads than that of a language model, and to
          // encoders.
          "classifier_dropout is_decoder",
          "head_dim original_max_position_embeddings partial_rotary_factor "
          "rope_parameters rope_scaling rope_theta rotary_emb_base rotary_pct",
          read_gpt_neox,
          "GPTNeoXTokenizer"};
}

}  // namespace longhaul::families
