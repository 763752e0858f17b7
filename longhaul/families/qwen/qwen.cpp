#include "longhaul/families/decoder.h"

#include <fmt/format.h>

namespace longhaul::families {
namespace {

/// Qwen2 (Yang et al. 2024, arXiv 2407.10671): biases of queries, keys and values. Qwen3
/// (Yang et al. 2025, arXiv 2505.09388): norms of each head of queries and keys.
class QwenFamily : public DecoderFamily {
 public:
  explicit QwenFamily(int version)
      : DecoderFamily(fmt::format("qwen{}", version),
                      version == 2 ? "Qwen2, Qwen2.5" : "Qwen3",
                      {fmt::format("Qwen{}ForCausalLM", version)}),
        version_(version) {}

 private:
  std::vector<std::string> more_fields() const override {
    return {"attention_bias", "max_window_layers", "sliding_window",
            "use_sliding_window"};
  }
  /// Those of every version of transformers. Qwen2 has no field head_dim of its own.
  AbsentFields absent_fields() const override {
    AbsentFields absent{.num_key_value_heads = 32, .head_dim = {}};
    if (version_ == 3) absent.head_dim = 128;
    return absent;
  }

  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
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
    s.head_biases = version_ == 2;
    s.head_norms = version_ == 3;
  }

  int version_;
};

}  // namespace

const Family& qwen2_family() {
  static const QwenFamily family(2);
  return family;
}

const Family& qwen3_family() {
  static const QwenFamily family(3);
  return family;
}

}  // namespace longhaul::families
