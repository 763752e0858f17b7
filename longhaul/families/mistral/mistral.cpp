#include "longhaul/families/mistral/mistral.h"

#include <fmt/format.h>

#include "longhaul/families/limits.h"
#include "longhaul/families/settings_of.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Field;
using families::UnitMaker;

/// transformers takes numbers of its own for these where they are absent, and others
/// where they are null.
void check_mistral_is_whole(const ConfigFields& fields) {
  for (const auto& [key, theirs] :
       {std::pair("num_key_value_heads", 8), std::pair("sliding_window", 4096)}) {
    if (fields.object().contains(key)) continue;
    fields.fail(key, fmt::format("is missing, and no default is safe (transformers takes "
                                 "{}); add it, or set model.override.{}",
                                 theirs, key));
  }
}

class MistralFamily : public families::Family {
 public:
  std::string model_type() const override { return "mistral"; }
  std::string about() const override { return "Mistral 7B and models of the same form"; }
  std::vector<std::string> architectures() const override {
    return {"MistralForCausalLM"};
  }
  std::vector<std::string> fields() const override {
    std::vector<std::string> names = families::decoder_fields();
    names.emplace_back("sliding_window");
    return names;
  }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    check_mistral_is_whole(fields);
    MistralSettings settings;
    families::read_decoder(fields, config, settings.decoder);
    settings.sliding_window =
        fields.integer("sliding_window", 1, families::kMaxPositions);
    config.description = families::describe_decoder(
        settings.decoder, config.vocab_size,
        [&](UnitMaker& unit, const std::string&, const families::Projected&) {
          if (settings.sliding_window) unit.window(*settings.sliding_window);
        });
    config.settings = std::make_shared<MistralSettings>(settings);
  }

  std::vector<Field> settings(const ModelConfig& config) const override {
    // All members by name: one that is added does not compile until it stands here.
    const auto& [decoder, window] = mistral_settings(config);
    std::vector<Field> fields = families::decoder_settings(decoder);
    fields.push_back(
        {"sliding_window", window ? fmt::format("{}", *window) : "null", true});
    return fields;
  }
};

}  // namespace

const MistralSettings& mistral_settings(const ModelConfig& config) {
  return families::settings_of<MistralSettings>(config, "Mistral");
}

const families::Family& mistral_family() {
  static const MistralFamily family;
  return family;
}

}  // namespace longhaul
