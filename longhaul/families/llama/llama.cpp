#include "longhaul/families/llama/llama.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/families/limits.h"
#include "longhaul/families/llama/description.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Field;
using families::kMaxLayers;
using families::kMaxPositions;
using families::kMaxWidth;

/// Fields that must hold the one value that the built mathematics has.
void check_neutral(const ConfigFields& fields) {
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
  for (const char* key : {"sliding_window", "attention_dropout"}) {
    const OrderedJson* value = fields.find(key);
    if (value && !families::is_off(*value)) fields.refuse(key, *value);
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

void read_sizes(const ConfigFields& fields, LlamaSettings& out) {
  out.hidden_size = fields.required_integer("hidden_size", 1, kMaxWidth);
  out.intermediate_size = fields.required_integer("intermediate_size", 1, kMaxWidth);
  out.num_hidden_layers = fields.required_integer("num_hidden_layers", 1, kMaxLayers);
  out.num_attention_heads = fields.required_integer("num_attention_heads", 1, kMaxWidth);
  out.num_key_value_heads = fields.integer("num_key_value_heads", 1, kMaxWidth)
                                .value_or(out.num_attention_heads);
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

LlamaSettings read_settings(const ConfigFields& fields) {
  LlamaSettings settings;
  read_sizes(fields, settings);
  settings.rms_norm_eps = fields.required_number("rms_norm_eps");
  if (settings.rms_norm_eps <= 0.0 || settings.rms_norm_eps >= 1.0) {
    fields.fail("rms_norm_eps",
                fmt::format("= {} must be between 0 and 1", settings.rms_norm_eps));
  }
  settings.initializer_range = fields.number("initializer_range").value_or(0.02);
  if (settings.initializer_range < 0.0) {
    fields.fail("initializer_range", "must not be negative");
  }
  // Absent means false in every version of the Llama class.
  settings.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  settings.rope = families::read_rope(fields);
  return settings;
}

class LlamaFamily : public families::Family {
 public:
  std::string model_type() const override { return "llama"; }
  std::string about() const override {
    return "Llama 1, 2, 3, 3.1 and models of the same form";
  }
  std::vector<std::string> architectures() const override {
    // The capital A is how the first converted Llamas spelt it.
    return {"LlamaForCausalLM", "LLaMAForCausalLM"};
  }
  std::vector<std::string> fields() const override {
    return {"attention_bias",
            "attention_dropout",
            "head_dim",
            "hidden_act",
            "hidden_size",
            "initializer_range",
            "intermediate_size",
            "layer_types",
            "max_position_embeddings",
            "mlp_bias",
            "num_attention_heads",
            "num_hidden_layers",
            "num_key_value_heads",
            "partial_rotary_factor",
            "pretraining_tp",
            "rms_norm_eps",
            "rope_parameters",
            "rope_scaling",
            "rope_theta",
            "sliding_window",
            "tie_word_embeddings"};
  }
  void read(const ConfigFields& fields, ModelConfig& config) const override {
    check_neutral(fields);
    const LlamaSettings settings = read_settings(fields);
    config.max_position_embeddings =
        fields.required_integer("max_position_embeddings", 1, kMaxPositions);
    config.description = describe_llama(settings, config.vocab_size);
    config.settings = std::make_shared<LlamaSettings>(settings);
  }
  std::vector<Field> settings(const ModelConfig& config) const override;
};

template <typename Value>
std::string text_of(const Value& value) {
  return fmt::format("{}", value);
}

std::vector<Field> LlamaFamily::settings(const ModelConfig& config) const {
  // All members by name: one that is added does not compile until it stands here.
  const auto& [hidden, intermediate, layers, heads, key_heads, head_dim, eps, range, tied,
               rope] = llama_settings(config);
  const auto& [kind, theta, factor, low, high, original] = rope;
  return {
      {"hidden_size", text_of(hidden), true},
      {"intermediate_size", text_of(intermediate), true},
      {"num_hidden_layers", text_of(layers), true},
      {"num_attention_heads", text_of(heads), true},
      {"num_key_value_heads", text_of(key_heads), true},
      {"head_dim", text_of(head_dim), true},
      {"rms_norm_eps", text_of(eps), true},
      {"initializer_range", text_of(range), false},
      {"tie_word_embeddings", text_of(tied), true},
      {"rope_theta", text_of(theta), true},
      {"rope_type", families::rope_type_name(kind), true},
      {"rope factor", text_of(factor), true},
      {"rope low_freq_factor", text_of(low), true},
      {"rope high_freq_factor", text_of(high), true},
      {"rope original_max_position_embeddings", text_of(original), true},
  };
}

}  // namespace

const LlamaSettings& llama_settings(const ModelConfig& config) {
  const auto* settings = dynamic_cast<const LlamaSettings*>(config.settings.get());
  LH_ASSERT(settings != nullptr, "a model of type '{}' is no Llama", config.model_type);
  return *settings;
}

ModelConfig make_llama(const LlamaSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings) {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = vocab_size;
  config.max_position_embeddings = max_position_embeddings;
  config.settings = std::make_shared<LlamaSettings>(settings);
  config.description = describe_llama(settings, vocab_size);
  return config;
}

const families::Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

}  // namespace longhaul
