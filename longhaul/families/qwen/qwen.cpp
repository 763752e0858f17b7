#include "longhaul/families/decoder.h"

#include <fmt/format.h>

namespace longhaul::families {
namespace {

/// Qwen2 (Yang et al. 2024, arXiv 2407.10671) has biases of queries, keys and values.
/// Qwen3 (Yang et al. 2025, arXiv 2505.09388) has norms of each head of queries and keys.
class QwenFamily : public DecoderFamily {
 public:
  /// Gives absent fields the sizes that every version of transformers gives them. Qwen2
  /// has no field head_dim of its own.
  explicit QwenFamily(int version)
      : DecoderFamily(
            fmt::format("qwen{}", version), version == 2 ? "Qwen2, Qwen2.5" : "Qwen3",
            fmt::format("Qwen{}ForCausalLM", version),
            {.more = "attention_bias max_window_layers sliding_window use_sliding_window",
             // The class of Qwen2 does not read attention_bias.
             .nullable = version == 2
                             ? "attention_bias num_key_value_heads sliding_window"
                             : "num_key_value_heads sliding_window",
             .absent = {.num_key_value_heads = 32,
                        .head_dim =
                            version == 3 ? std::optional<int64_t>(128) : std::nullopt}}),
        version_(version) {}

 private:
  void read_more(const ConfigFields& fields, DecoderSettings& s) const override {
    // Without this field sliding_window and max_window_layers have no effect.
    fields.refuse_true({"use_sliding_window"}, "is not available yet");
    if (fields.boolean("attention_bias").value_or(version_ == 2) != (version_ == 2)) {
      fields.fail("attention_bias",
                  "= {} is not available yet: this program's Qwen{} has {}",
                  version_ != 2, version_, version_ == 2 ? "biases" : "no biases");
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
