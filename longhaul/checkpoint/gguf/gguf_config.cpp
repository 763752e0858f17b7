#include "longhaul/checkpoint/gguf/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/gguf/gguf_architecture.h"

namespace longhaul::checkpoint {
namespace {

using format::GgufHeader;
using format::GgufTensor;
using format::GgufValue;

/// Returns a value as a number; nothing for values of other kinds.
std::optional<double> as_number(const GgufValue& value) {
  return std::visit(
      [](const auto& one) -> std::optional<double> {
        using T = std::remove_cvref_t<decltype(one)>;
        if constexpr (std::is_same_v<T, bool> || !std::is_arithmetic_v<T>) {
          return std::nullopt;
        } else {
          return static_cast<double>(one);
        }
      },
      value);
}

/// Returns the decimal number with the fewest digits that has this value in fp32: that of
/// the config.json from which the file was made.
double shortest(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  return std::strtod(text.c_str(), nullptr);
}

/// The keys of the file's architecture, and its tensors.
class FileKeys {
 public:
  FileKeys(const GgufHeader& header, const std::string& what)
      : header_(header), what_(what) {
    const GgufValue* name = format::find_value(header.values, "general.architecture");
    const auto* text = name ? std::get_if<std::string>(name) : nullptr;
    if (text == nullptr) {
      fail_input("gguf", "{}: the key general.architecture is missing, or no text", what);
    }
    architecture_ = *text;
  }

  const std::string& architecture() const { return architecture_; }
  const GgufValue* find(const std::string& key) const {
    return format::find_value(header_.values, architecture_ + "." + key);
  }
  std::optional<double> number(const std::string& key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto found = as_number(*value);
    if (!found || !std::isfinite(*found)) fail(key, format::describe_value(*value));
    return shortest(*found);
  }
  double required(const std::string& key) const {
    const auto found = number(key);
    if (!found) {
      fail_input("gguf", "{}: the key {}.{} is missing", what_, architecture_, key);
    }
    return *found;
  }
  /// Returns a count, which fp32 need not hold.
  int64_t count(const std::string& key, std::optional<int64_t> absent = {}) const {
    const GgufValue* value = find(key);
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) required(key);
    const double found = as_number(*value).value_or(-1.0);
    if (found < 0.0 || found > INT32_MAX || found != std::floor(found)) {
      fail(key, format::describe_value(*value));
    }
    return static_cast<int64_t>(found);
  }
  std::string text(const std::string& key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return {};
    const auto* found = std::get_if<std::string>(value);
    if (found == nullptr) fail(key, format::describe_value(*value));
    return *found;
  }
  std::vector<bool> flags(const std::string& key, std::vector<bool> absent) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return absent;
    const auto* found = std::get_if<std::vector<bool>>(value);
    if (found == nullptr || found->size() != absent.size()) {
      fail(key, format::describe_value(*value));
    }
    return *found;
  }
  const GgufTensor* tensor(std::string_view name) const {
    const auto found = std::ranges::find(header_.tensors, name, &GgufTensor::name);
    return found == header_.tensors.end() ? nullptr : &*found;
  }
  /// Returns the id of a special token, or null.
  OrderedJson token(const char* name) const {
    const GgufValue* value = format::find_value(
        header_.values, fmt::format("tokenizer.ggml.{}_token_id", name));
    const auto* id = value ? std::get_if<uint32_t>(value) : nullptr;
    return id ? OrderedJson(*id) : OrderedJson(nullptr);
  }
  const std::string& what() const { return what_; }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& value) const {
    fail_input("gguf", "{}: the key {}.{} is {}, which cannot be", what_, architecture_,
               key, value);
  }

  const GgufHeader& header_;
  const std::string& what_;
  std::string architecture_;
};

int64_t head_width(const FileKeys& keys) {
  const int64_t heads = keys.count("attention.head_count");
  if (heads == 0) {
    fail_input("gguf", "{}: the key {}.attention.head_count is 0", keys.what(),
               keys.architecture());
  }
  return keys.count("attention.key_length", keys.count("embedding_length") / heads);
}

/// Returns the fields of the rotation that every layer has, or all without a window.
OrderedJson rope_of(const FileKeys& keys) {
  OrderedJson rope = {{"rope_type", "default"},
                      {"rope_theta", keys.number("rope.freq_base").value_or(1e4)}};
  if (keys.tensor("rope_freqs.weight") != nullptr) {
    fail_input("gguf",
               "{}: rope_freqs.weight scales the rotation, and config.json's fields of "
               "llama3 cannot be told from it; give the model's config.json with "
               "--config",
               keys.what());
  }
  const std::string type = keys.text("rope.scaling.type");
  if (type.empty() || type == "none") return rope;
  rope["rope_type"] = type;
  rope["factor"] = keys.required("rope.scaling.factor");
  if (type != "yarn") return rope;
  rope["original_max_position_embeddings"] =
      keys.count("rope.scaling.original_context_length");
  for (const auto& [key, field] :
       {std::pair{"rope.scaling.yarn_attn_factor", "attention_factor"},
        std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
        std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
    if (const auto value = keys.number(key)) rope[field] = *value;
  }
  return rope;
}

void set_rope_fields(const FileKeys& keys, OrderedJson& json) {
  OrderedJson rope = rope_of(keys);
  json["rope_theta"] = rope["rope_theta"];
  if (rope["rope_type"] == "default") return;
  rope.erase("rope_theta");
  json["rope_scaling"] = std::move(rope);
}

/// Sets head_dim where the file has it. Without it the class of the model takes the width
/// over the heads, too.
void set_head_dim(const FileKeys& keys, OrderedJson& json) {
  if (keys.find("attention.key_length") != nullptr) json["head_dim"] = head_width(keys);
}

/// Returns the fields that all decoders have.
OrderedJson decoder(const FileKeys& keys, const char* model_type,
                    const char* architecture) {
  const int64_t heads = keys.count("attention.head_count");
  return {{"architectures", OrderedJson::array({architecture})},
          {"model_type", model_type},
          {"hidden_size", keys.count("embedding_length")},
          {"intermediate_size", keys.count("feed_forward_length")},
          {"num_hidden_layers", keys.count("block_count")},
          {"num_attention_heads", heads},
          {"num_key_value_heads", keys.count("attention.head_count_kv", heads)},
          {"hidden_act", "silu"},
          {"max_position_embeddings", keys.count("context_length")},
          {"rms_norm_eps", keys.required("attention.layer_norm_rms_epsilon")}};
}

OrderedJson read_llama(const FileKeys& keys) {
  const bool mixes = keys.find("expert_count") != nullptr;
  OrderedJson json = mixes ? decoder(keys, "mixtral", "MixtralForCausalLM")
                           : decoder(keys, "llama", "LlamaForCausalLM");
  set_head_dim(keys, json);
  set_rope_fields(keys, json);
  if (!mixes) return json;
  json["num_local_experts"] = keys.count("expert_count");
  json["num_experts_per_tok"] = keys.count("expert_used_count");
  json["sliding_window"] = nullptr;
  return json;
}

OrderedJson read_qwen2(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "qwen2", "Qwen2ForCausalLM");
  set_rope_fields(keys, json);
  return json;
}

OrderedJson read_qwen3(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "qwen3", "Qwen3ForCausalLM");
  json["head_dim"] = head_width(keys);
  set_rope_fields(keys, json);
  return json;
}

OrderedJson read_qwen3moe(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "qwen3_moe", "Qwen3MoeForCausalLM");
  set_head_dim(keys, json);
  json["num_experts"] = keys.count("expert_count");
  json["num_experts_per_tok"] = keys.count("expert_used_count");
  json["moe_intermediate_size"] = keys.count("expert_feed_forward_length");
  json["norm_topk_prob"] = true;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = OrderedJson::array();
  set_rope_fields(keys, json);
  return json;
}

/// Sets the fields of the layers that have a window, and of both rotations. Without the
/// key every `period`-th layer has no window.
void set_layer_kinds(const FileKeys& keys, int64_t period, OrderedJson& json) {
  const int64_t window = keys.count("attention.sliding_window", 0);
  const int64_t layers = keys.count("block_count");
  if (layers > (1 << 16)) {
    fail_input("gguf", "{}: the key {}.block_count is {}, which cannot be", keys.what(),
               keys.architecture(), layers);
  }
  std::vector<bool> pattern;
  for (int64_t i = 1; i <= layers; ++i) pattern.push_back(window > 0 && i % period != 0);
  if (window > 0) {
    pattern = keys.flags("attention.sliding_window_pattern", std::move(pattern));
    json["sliding_window"] = window;
  }
  OrderedJson types = OrderedJson::array();
  for (const bool sliding : pattern) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  json["layer_types"] = std::move(types);
  const double base = keys.number("rope.freq_base").value_or(1e4);
  const double usual = keys.architecture() == "gemma3" ? 1e4 : base;
  json["rope_parameters"] = {
      {"full_attention", rope_of(keys)},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", keys.number("rope.freq_base_swa").value_or(usual)}}}};
}

OrderedJson read_gemma3(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "gemma3_text", "Gemma3ForCausalLM");
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["head_dim"] = head_width(keys);
  // A model of 62 layers is the one of 27B parameters (describe_gguf).
  json["query_pre_attn_scalar"] =
      keys.count("block_count") == 62
          ? keys.count("embedding_length") / keys.count("attention.head_count")
          : head_width(keys);
  set_layer_kinds(keys, 6, json);
  return json;
}

OrderedJson read_olmo2(const FileKeys& keys) {
  if (keys.find("attention.sliding_window") == nullptr) {
    OrderedJson json = decoder(keys, "olmo2", "Olmo2ForCausalLM");
    set_rope_fields(keys, json);
    return json;
  }
  OrderedJson json = decoder(keys, "olmo3", "Olmo3ForCausalLM");
  set_layer_kinds(keys, 4, json);
  return json;
}

OrderedJson read_granite(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "granite", "GraniteForCausalLM");
  set_rope_fields(keys, json);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width(keys)));
  json["attention_multiplier"] = keys.number("attention.scale").value_or(scale);
  json["embedding_multiplier"] = keys.number("embedding_scale").value_or(1.0);
  json["residual_multiplier"] = keys.number("residual_scale").value_or(1.0);
  json["logits_scaling"] = keys.required("logit_scale");
  json["attention_bias"] = keys.tensor("blk.0.attn_output.bias") != nullptr;
  json["mlp_bias"] = keys.tensor("blk.0.ffn_down.bias") != nullptr;
  return json;
}

OrderedJson read_smollm3(const FileKeys& keys) {
  OrderedJson json = decoder(keys, "smollm3", "SmolLM3ForCausalLM");
  set_head_dim(keys, json);
  json["no_rope_layer_interval"] = 4;
  set_rope_fields(keys, json);
  return json;
}

OrderedJson read_gpt2(const FileKeys& keys) {
  const int64_t positions = keys.count("context_length");
  return {{"architectures", OrderedJson::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"n_embd", keys.count("embedding_length")},
          {"n_inner", keys.count("feed_forward_length")},
          {"n_layer", keys.count("block_count")},
          {"n_head", keys.count("attention.head_count")},
          {"n_positions", positions},
          {"n_ctx", positions},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", keys.required("attention.layer_norm_epsilon")}};
}

OrderedJson read_gptneox(const FileKeys& keys) {
  const int64_t width = head_width(keys);
  const auto part = static_cast<double>(keys.count("rope.dimension_count", width)) /
                    static_cast<double>(std::max<int64_t>(width, 1));
  const GgufValue* parallel = keys.find("use_parallel_residual");
  return {{"architectures", OrderedJson::array({"GPTNeoXForCausalLM"})},
          {"model_type", "gpt_neox"},
          {"hidden_size", keys.count("embedding_length")},
          {"intermediate_size", keys.count("feed_forward_length")},
          {"num_hidden_layers", keys.count("block_count")},
          {"num_attention_heads", keys.count("attention.head_count")},
          {"hidden_act", "gelu"},
          {"max_position_embeddings", keys.count("context_length")},
          {"layer_norm_eps", keys.required("attention.layer_norm_epsilon")},
          {"rotary_pct", part},
          {"rotary_emb_base", keys.number("rope.freq_base").value_or(1e4)},
          {"use_parallel_residual", parallel != nullptr && *parallel == GgufValue(true)}};
}

using ReadArchitecture = OrderedJson (*)(const FileKeys& keys);
constexpr std::pair<std::string_view, ReadArchitecture> kReaders[] = {
    {"llama", read_llama},       {"qwen2", read_qwen2},     {"qwen3", read_qwen3},
    {"qwen3moe", read_qwen3moe}, {"gemma3", read_gemma3},   {"olmo2", read_olmo2},
    {"granite", read_granite},   {"smollm3", read_smollm3}, {"gpt2", read_gpt2},
    {"gptneox", read_gptneox}};

/// Returns whether two values are the same number, to fp32, or equal otherwise.
bool same_value(const GgufValue& a, const GgufValue& b) {
  const auto first = as_number(a), second = as_number(b);
  if (first && second) {
    return static_cast<float>(*first) == static_cast<float>(*second);
  }
  return a == b;
}

}  // namespace

std::string config_of_gguf(const GgufHeader& header, const std::string& what) {
  const FileKeys keys(header, what);
  const auto* reader = std::ranges::find(kReaders, keys.architecture(),
                                         [](const auto& one) { return one.first; });
  if (reader == std::end(kReaders)) {
    fail_input("gguf", "{}: the architecture {} is not read; {} are", what,
               format::describe_value(keys.architecture()), gguf_architectures());
  }
  OrderedJson json = reader->second(keys);
  const GgufTensor* const table = keys.tensor("token_embd.weight");
  if (table == nullptr) {
    fail_input("gguf", "{}: the tensor token_embd.weight is missing", what);
  }
  json["vocab_size"] = table->shape.front();
  json["tie_word_embeddings"] = keys.tensor("output.weight") == nullptr;
  json["bos_token_id"] = keys.token("bos");
  json["eos_token_id"] = keys.token("eos");
  if (!has_word("gpt2 gptneox", keys.architecture())) {
    json["pad_token_id"] = keys.token("padding");
  }
  return json_text(json, 2) + "\n";
}

void check_gguf_values(const GgufHeader& header, const format::GgufValues& values,
                       const std::string& what) {
  const FileKeys keys(header, what);
  const std::string prefix = keys.architecture() + ".";
  // These keys follow from others, or from the shapes of tensors.
  const auto implied = [&](std::string_view key) -> std::optional<double> {
    if (key == "attention.key_length" || key == "attention.value_length" ||
        key == "rope.dimension_count") {
      return static_cast<double>(head_width(keys));
    }
    if (key == "attention.head_count_kv") {
      return static_cast<double>(keys.count("attention.head_count"));
    }
    if (key == "vocab_size") {
      return static_cast<double>(keys.tensor("token_embd.weight")->shape.front());
    }
    return std::nullopt;
  };
  for (const auto& [key, value] : header.values) {
    if (!key.starts_with(prefix)) continue;
    const GgufValue* ours = format::find_value(values, key);
    if (ours != nullptr && same_value(*ours, value)) continue;
    const auto expected = implied(std::string_view(key).substr(prefix.size()));
    if (ours == nullptr && expected && as_number(value) == expected) continue;
    if (ours != nullptr) {
      fail_input("gguf", "{}: the key {} is {}, and the model's config.json gives {}",
                 what, key, format::describe_value(value), format::describe_value(*ours));
    }
    fail_input("gguf",
               "{}: the key {} = {} is not read; the model may not be computed "
               "without it",
               what, key, format::describe_value(value));
  }
}

}  // namespace longhaul::checkpoint
