#include "longhaul/families/qwen/qwen.h"

#include <fmt/format.h>

#include "longhaul/families/limits.h"
#include "longhaul/families/settings_of.h"

namespace longhaul {
namespace {

using families::ConfigFields;
using families::Field;
using families::UnitMaker;

void add_biases(UnitMaker& unit, const std::string& block, const QwenSettings& s) {
  using Unit = ShardUnit;
  const int64_t query = s.num_attention_heads * s.head_dim;
  const int64_t key = s.num_key_value_heads * s.head_dim;
  unit.bias(block + "self_attn.q_proj.bias", query, {{Unit::QueryHeads, 0}});
  unit.bias(block + "self_attn.k_proj.bias", key, {{Unit::KeyHeads, 0}});
  unit.bias(block + "self_attn.v_proj.bias", key, {{Unit::KeyHeads, 0}});
}

void add_head_norms(UnitMaker& unit, const std::string& block,
                    const families::Projected& projected, const QwenSettings& s) {
  unit.head_norm(block + "self_attn.q_norm.weight", projected.query, s.head_dim);
  unit.head_norm(block + "self_attn.k_norm.weight", projected.key, s.head_dim);
}

class QwenFamily : public families::Family {
 public:
  explicit QwenFamily(int version) : version_(version) {}

  std::string model_type() const override { return fmt::format("qwen{}", version_); }
  std::string about() const override {
    return version_ == 2 ? "Qwen2, Qwen2.5" : "Qwen3";
  }
  std::vector<std::string> architectures() const override {
    return {fmt::format("Qwen{}ForCausalLM", version_)};
  }
  std::vector<std::string> fields() const override {
    std::vector<std::string> names = families::decoder_fields();
    for (const char* name : {"attention_bias", "max_window_layers", "sliding_window",
                             "use_sliding_window"}) {
      names.emplace_back(name);
    }
    return names;
  }

  void read(const ConfigFields& fields, ModelConfig& config) const override {
    // Without it sliding_window and max_window_layers have no effect.
    if (fields.boolean("use_sliding_window").value_or(false)) {
      fields.fail("use_sliding_window", "= true is not available yet");
    }
    if (fields.boolean("attention_bias").value_or(version_ == 2) != (version_ == 2)) {
      fields.fail(
          "attention_bias",
          fmt::format("= {} is not available yet: this program's Qwen{} has {}",
                      version_ != 2, version_, version_ == 2 ? "them" : "no biases"));
    }
    QwenSettings settings;
    families::read_decoder(fields, config, settings, absent_sizes());
    settings.biases = version_ == 2;
    settings.head_norms = version_ == 3;
    config.description =
        families::describe_decoder(settings, config.vocab_size,
                                   [&](UnitMaker& unit, const std::string& block,
                                       const families::Projected& projected) {
                                     if (settings.biases)
                                       add_biases(unit, block, settings);
                                     if (settings.head_norms)
                                       add_head_norms(unit, block, projected, settings);
                                   });
    config.settings = std::make_shared<QwenSettings>(settings);
  }

  std::vector<Field> settings(const ModelConfig& config) const override {
    return families::decoder_settings(qwen_settings(config));
  }

 private:
  /// Those of every version of transformers. Qwen2 has no field head_dim of its own.
  families::AbsentSizes absent_sizes() const {
    families::AbsentSizes absent{.num_key_value_heads = 32, .head_dim = {}};
    if (version_ == 3) absent.head_dim = 128;
    return absent;
  }

  int version_;
};

}  // namespace

const QwenSettings& qwen_settings(const ModelConfig& config) {
  return families::settings_of<QwenSettings>(config, "Qwen");
}

const families::Family& qwen2_family() {
  static const QwenFamily family(2);
  return family;
}

const families::Family& qwen3_family() {
  static const QwenFamily family(3);
  return family;
}

}  // namespace longhaul
