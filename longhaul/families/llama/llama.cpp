#include "longhaul/families/llama/llama.h"

#include <fmt/format.h>

#include "longhaul/families/limits.h"
#include "longhaul/families/settings_of.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Field;

/// Fields that must hold the one value that the built mathematics has.
void check_neutral(const ConfigFields& fields) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (fields.boolean(key).value_or(false)) {
      fields.fail(key, "= true is not available yet: this program's Llama has no biases");
    }
  }
  const auto slices = fields.integer("pretraining_tp", 1, families::kMaxWidth);
  if (slices.value_or(1) != 1) {
    fields.fail(
        "pretraining_tp",
        fmt::format("= {} makes transformers compute each product in {} slices, which "
                    "changes the rounding only; set model.override.pretraining_tp = 1 "
                    "to train the same model without them",
                    *slices, *slices));
  }
  const OrderedJson* window = fields.find("sliding_window");
  if (window && !families::is_off(*window)) fields.refuse("sliding_window", *window);
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
    std::vector<std::string> names = families::decoder_fields();
    for (const char* name :
         {"attention_bias", "mlp_bias", "pretraining_tp", "sliding_window"}) {
      names.emplace_back(name);
    }
    return names;
  }
  void read(const ConfigFields& fields, ModelConfig& config) const override {
    check_neutral(fields);
    LlamaSettings settings;
    families::read_decoder(fields, config, settings);
    config.description = families::describe_decoder(settings, config.vocab_size);
    config.settings = std::make_shared<LlamaSettings>(settings);
  }
  std::vector<Field> settings(const ModelConfig& config) const override {
    return families::decoder_settings(llama_settings(config));
  }
};

}  // namespace

const LlamaSettings& llama_settings(const ModelConfig& config) {
  return families::settings_of<LlamaSettings>(config, "Llama");
}

ModelConfig make_llama(const LlamaSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings) {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = vocab_size;
  config.max_position_embeddings = max_position_embeddings;
  config.settings = std::make_shared<LlamaSettings>(settings);
  config.description = families::describe_decoder(settings, vocab_size);
  return config;
}

const families::Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

}  // namespace longhaul
