#include "longhaul/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/config/model_reader.h"

namespace longhaul {
namespace {

using config::JsonFields;

// Larger sizes are typing errors or attacks; products of these still fit 64 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxLayers = int64_t{1} << 14;
constexpr int64_t kMaxVocab = int64_t{1} << 30;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr uint64_t kMaxModelBytes = uint64_t{1} << 24;

/// Fields this program reads; the only ones that an override may name.
constexpr std::array kRead{"attention_bias",
                           "attention_dropout",
                           "bos_token_id",
                           "eos_token_id",
                           "head_dim",
                           "hidden_act",
                           "hidden_size",
                           "initializer_range",
                           "intermediate_size",
                           "layer_types",
                           "max_position_embeddings",
                           "mlp_bias",
                           "model_type",
                           "num_attention_heads",
                           "num_hidden_layers",
                           "num_key_value_heads",
                           "partial_rotary_factor",
                           "pretraining_tp",
                           "quantization_config",
                           "rms_norm_eps",
                           "rope_parameters",
                           "rope_scaling",
                           "rope_theta",
                           "sliding_window",
                           "tie_word_embeddings",
                           "vocab_size",
                           "architectures"};

/// Fields that say nothing about the mathematics.
constexpr std::array kHarmless{
    "_name_or_path", "transformers_version", "use_cache",    "torch_dtype",
    "dtype",         "pad_token_id",         "unk_token_id", "return_dict"};

/// Fields of other families that would change the mathematics if a file has them on.
constexpr std::array kOtherMathematics{"num_experts",
                                       "num_local_experts",
                                       "n_routed_experts",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "logits_scaling",
                                       "embedding_multiplier",
                                       "attention_multiplier",
                                       "residual_multiplier",
                                       "use_qk_norm",
                                       "qk_norm",
                                       "use_sliding_window",
                                       "hidden_dropout",
                                       "hidden_dropout_prob",
                                       "resid_pdrop",
                                       "embd_pdrop",
                                       "attn_pdrop",
                                       "no_rope_layers",
                                       "num_nextn_predict_layers",
                                       "rope_interleaved",
                                       "use_parallel_residual",
                                       "clip_qkv",
                                       "parallel_attn",
                                       "scale_embeddings"};

template <size_t N>
bool is_in(const std::array<const char*, N>& names, const std::string& name) {
  return std::ranges::count(names, name) > 0;
}

/// null, false, 0, "" and empty lists switch a feature off.
bool is_off(const OrderedJson& json) {
  if (json.is_null()) return true;
  if (json.is_boolean()) return !json.get<bool>();
  if (json.is_number()) return json.get<double>() == 0.0;
  if (json.is_string()) return json.get_ref<const std::string&>().empty();
  return json.empty();
}

void check_family(const JsonFields& fields) {
  const auto type = fields.text("model_type");
  if (!type) fields.fail("model_type", "is missing; supported: \"llama\"");
  if (*type != "llama") {
    fields.fail(
        "model_type",
        fmt::format("\"{}\" is not available yet; supported: \"llama\" (Llama 1, 2, "
                    "3, 3.1 and models of the same form)",
                    *type));
  }
  const OrderedJson* architectures = fields.find("architectures");
  if (!architectures) return;
  if (!architectures->is_array())
    fields.fail("architectures", "expected a list of names");
  for (const OrderedJson& item : *architectures) {
    // The capital A is how the first converted Llamas spelt it.
    if (item == "LlamaForCausalLM" || item == "LLaMAForCausalLM") continue;
    fields.fail(
        "architectures",
        fmt::format("{} is not available; supported: \"LlamaForCausalLM\"", item.dump()));
  }
}

/// Fields that must hold the one value that the built mathematics has.
void check_neutral(const JsonFields& fields) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (fields.boolean(key).value_or(false)) {
      fields.fail(key, "= true is not available yet: this program's Llama has no biases");
    }
  }
  const std::string act = fields.text("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish") {
    fields.fail("hidden_act",
                fmt::format("\"{}\" is not available; supported: \"silu\"", act));
  }
  const auto slices = fields.integer("pretraining_tp", 1, kMaxWidth);
  if (slices.value_or(1) != 1) {
    fields.fail(
        "pretraining_tp",
        fmt::format("= {} makes transformers compute each product in {} slices, which "
                    "changes the rounding only; set model.override.pretraining_tp = 1 "
                    "to train the same model without them",
                    *slices, *slices));
  }
  const auto partial = fields.number("partial_rotary_factor");
  if (partial.value_or(1.0) != 1.0) {
    fields.fail("partial_rotary_factor",
                fmt::format("= {} is not available yet; only 1.0 is", *partial));
  }
  for (const char* key : {"sliding_window", "quantization_config", "attention_dropout"}) {
    const OrderedJson* value = fields.find(key);
    if (value && !is_off(*value)) {
      fields.fail(key,
                  fmt::format("= {} is not available yet; remove it, or set it to null "
                              "if the model does not need it",
                              value->dump().substr(0, 80)));
    }
  }
  if (const OrderedJson* types = fields.find("layer_types")) {
    for (const OrderedJson& type : *types) {
      if (type == "full_attention") continue;
      fields.fail("layer_types", fmt::format("{} is not available yet; only "
                                             "\"full_attention\" is",
                                             type.dump()));
    }
  }
}

/// Refuses other families' mathematics, and lists what is left over.
std::vector<std::string> check_rest(const JsonFields& fields) {
  std::vector<std::string> ignored;
  for (const auto& [key, value] : fields.object().items()) {
    if (is_in(kRead, key) || is_in(kHarmless, key)) continue;
    if (is_in(kOtherMathematics, key)) {
      if (is_off(value)) continue;
      fields.fail(key, fmt::format("= {} changes the mathematics and is not available",
                                   value.dump().substr(0, 80)));
    }
    ignored.push_back(key);
  }
  return ignored;
}

void read_sizes(const JsonFields& fields, ModelConfig& out) {
  out.vocab_size = fields.required_integer("vocab_size", 1, kMaxVocab);
  out.hidden_size = fields.required_integer("hidden_size", 1, kMaxWidth);
  out.intermediate_size = fields.required_integer("intermediate_size", 1, kMaxWidth);
  out.num_hidden_layers = fields.required_integer("num_hidden_layers", 1, kMaxLayers);
  out.num_attention_heads = fields.required_integer("num_attention_heads", 1, kMaxWidth);
  out.num_key_value_heads = fields.integer("num_key_value_heads", 1, kMaxWidth)
                                .value_or(out.num_attention_heads);
  out.max_position_embeddings =
      fields.required_integer("max_position_embeddings", 1, kMaxPositions);
  const auto head_dim = fields.integer("head_dim", 1, kMaxWidth);
  if (!head_dim && out.hidden_size % out.num_attention_heads != 0) {
    fields.fail(
        "hidden_size",
        fmt::format("= {} does not divide by num_attention_heads = {}, and head_dim "
                    "is not given",
                    out.hidden_size, out.num_attention_heads));
  }
  out.head_dim = head_dim.value_or(out.hidden_size / out.num_attention_heads);
  if (out.head_dim % 2 != 0) {
    fields.fail("head_dim",
                fmt::format("= {} must be even: RoPE turns pairs", out.head_dim));
  }
  if (out.num_attention_heads * out.head_dim > kMaxWidth) {
    fields.fail("head_dim",
                fmt::format("= {} times num_attention_heads = {} is above {}",
                            out.head_dim, out.num_attention_heads, kMaxWidth));
  }
  if (out.num_attention_heads % out.num_key_value_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("= {} does not divide num_attention_heads = {}",
                            out.num_key_value_heads, out.num_attention_heads));
  }
}

void check_token_ids(const JsonFields& fields, const ModelConfig& config) {
  const auto check = [&](const char* key, const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) {
      if (id < config.vocab_size) continue;
      fields.fail(key,
                  fmt::format("= {} is past vocab_size = {}", id, config.vocab_size));
    }
  };
  check("bos_token_id", config.bos_token_ids);
  check("eos_token_id", config.eos_token_ids);
}

/// Replaces fields. rope_theta goes to where the source keeps it.
void apply_overrides(OrderedJson& json, const std::string& file,
                     std::span<const ModelOverride> overrides) {
  for (const ModelOverride& item : overrides) {
    if (!is_in(kRead, item.field)) {
      const std::vector<std::string> names(kRead.begin(), kRead.end());
      const auto nearest = nearest_name(item.field, names);
      throw ConfigError(
          "model",
          fmt::format("model.override: {} is not a field that this program reads "
                      "from {}{}",
                      item.field, file,
                      nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
    }
    const OrderedJson value =
        parse_ordered_json(item.json, "model.override." + item.field);
    const bool inside = item.field == "rope_theta" && json.contains("rope_parameters") &&
                        json["rope_parameters"].is_object();
    (inside ? json["rope_parameters"] : json)[item.field] = value;
  }
}

}  // namespace

int64_t ModelConfig::num_parameters() const {
  const int64_t queries = num_attention_heads * head_dim;
  const int64_t keys = num_key_value_heads * head_dim;
  const int64_t attention = 2 * hidden_size * queries + 2 * hidden_size * keys;
  const int64_t feed_forward = 3 * hidden_size * intermediate_size;
  const int64_t layer = attention + feed_forward + 2 * hidden_size;
  const int64_t matrices = tie_word_embeddings ? 1 : 2;
  return num_hidden_layers * layer + hidden_size + matrices * vocab_size * hidden_size;
}

int64_t ModelConfig::num_parameters_without_embedding() const {
  return num_parameters() - (tie_word_embeddings ? 0 : vocab_size * hidden_size);
}

ModelConfig parse_model_config(std::string_view text, const fs::path& source,
                               std::span<const ModelOverride> overrides) {
  const std::string file = source.string();
  OrderedJson json = parse_ordered_json(text, file);
  if (!json.is_object()) {
    throw InputError("model", fmt::format("{}: expected a JSON object", file));
  }
  apply_overrides(json, file, overrides);
  const JsonFields fields(json, file);
  check_family(fields);
  check_neutral(fields);

  ModelConfig config;
  config.model_type = "llama";
  config.ignored_fields = check_rest(fields);
  read_sizes(fields, config);
  config.rms_norm_eps = fields.required_number("rms_norm_eps");
  if (config.rms_norm_eps <= 0.0 || config.rms_norm_eps >= 1.0) {
    fields.fail("rms_norm_eps",
                fmt::format("= {} must be between 0 and 1", config.rms_norm_eps));
  }
  config.initializer_range = fields.number("initializer_range").value_or(0.02);
  if (config.initializer_range < 0.0) {
    fields.fail("initializer_range", "must not be negative");
  }
  // Absent means false in every version of the Llama class.
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  config.rope = config::read_rope(fields);
  config.bos_token_ids = fields.token_ids("bos_token_id");
  config.eos_token_ids = fields.token_ids("eos_token_id");
  check_token_ids(fields, config);
  config.source_json = json.dump(2) + "\n";
  config.source_path = source;
  return config;
}

ModelConfig load_model_config(const fs::path& dir_or_json,
                              std::span<const ModelOverride> overrides) {
  if (!fs::exists(dir_or_json)) {
    throw InputError("model", fmt::format("{}; expected a Hugging Face directory or its "
                                          "config.json",
                                          missing_path(dir_or_json)));
  }
  const fs::path file =
      fs::is_directory(dir_or_json) ? dir_or_json / "config.json" : dir_or_json;
  if (!fs::exists(file)) {
    throw InputError("model",
                     fmt::format("{} has no config.json; expected a Hugging Face "
                                 "directory{}",
                                 dir_or_json.string(),
                                 fs::exists(dir_or_json / "store.json")
                                     ? "; this one is a token store, which is data"
                                     : ""));
  }
  if (file.extension() != ".json") {
    throw InputError("model",
                     fmt::format("{}: is no config.json; expected a Hugging Face "
                                 "directory or its config.json",
                                 file.string()));
  }
  return parse_model_config(read_text(file, kMaxModelBytes), file, overrides);
}

std::string to_hf_config_json(const ModelConfig& config, std::string_view dtype_name) {
  OrderedJson json = parse_ordered_json(config.source_json, config.source_path.string());
  const std::string name(dtype_name);
  // Files of transformers 5 say dtype, older ones torch_dtype.
  const bool is_new = json.contains("dtype") || json.contains("rope_parameters");
  const bool is_old = json.contains("torch_dtype") || !is_new;
  if (is_old) json["torch_dtype"] = name;
  if (json.contains("dtype") || !is_old) json["dtype"] = name;
  return json.dump(2) + "\n";
}

}  // namespace longhaul
