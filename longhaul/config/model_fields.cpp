#include "longhaul/config/model_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "longhaul/base/error.h"
#include "longhaul/config/model_reader.h"

namespace longhaul {
namespace {

struct Described {
  const char* field;
  std::string value;  ///< numbers to the last bit
  bool of_result;
};

template <typename Value>
std::string text_of(const Value& value) {
  return fmt::format("{}", value);
}

std::vector<Described> describe(const ModelConfig& model) {
  // All members by name: one that is added does not compile until it stands here.
  const auto& [type, vocabulary, hidden, intermediate, layers, heads, key_heads, head_dim,
               positions, eps, range, tied, rope, bos, eos, ignored, json, path] = model;
  const auto& [kind, theta, factor, low, high, original] = rope;
  return {
      {"model_type", type, true},
      {"vocab_size", text_of(vocabulary), true},
      {"hidden_size", text_of(hidden), true},
      {"intermediate_size", text_of(intermediate), true},
      {"num_hidden_layers", text_of(layers), true},
      {"num_attention_heads", text_of(heads), true},
      {"num_key_value_heads", text_of(key_heads), true},
      {"head_dim", text_of(head_dim), true},
      {"max_position_embeddings", text_of(positions), false},
      {"rms_norm_eps", text_of(eps), true},
      {"initializer_range", text_of(range), false},
      {"tie_word_embeddings", text_of(tied), true},
      {"rope_theta", text_of(theta), true},
      {"rope_type", config::rope_type_name(kind), true},
      {"rope factor", text_of(factor), true},
      {"rope low_freq_factor", text_of(low), true},
      {"rope high_freq_factor", text_of(high), true},
      {"rope original_max_position_embeddings", text_of(original), true},
      {"bos_token_id", text_of(bos), false},
      {"eos_token_id", text_of(eos), false},
  };
}

ModelConfig parse_saved(std::string_view text, const fs::path& file) {
  try {
    return parse_model_config(text, file);
  } catch (const InputError& error) {
    // No damage: what a checkpoint holds is proved by its hash.
    throw ConfigError("model", fmt::format("the model of the checkpoint cannot be "
                                           "compared with the run's: {}",
                                           error.what()));
  }
}

}  // namespace

std::vector<ModelDifference> differing_fields(const ModelConfig& ours,
                                              const ModelConfig& theirs) {
  const std::vector<Described> our = describe(ours);
  const std::vector<Described> their = describe(theirs);
  std::vector<ModelDifference> result;
  for (size_t i = 0; i < our.size(); ++i) {
    if (our[i].value == their[i].value) continue;
    result.push_back({our[i].field, our[i].value, their[i].value, our[i].of_result});
  }
  return result;
}

void check_same_model(const ModelConfig& ours, std::string_view text,
                      const fs::path& theirs, const std::string& from) {
  std::vector<std::string> lines;
  for (const ModelDifference& d : differing_fields(ours, parse_saved(text, theirs))) {
    lines.push_back(fmt::format("{} is {}, was {}", d.field, d.ours, d.theirs));
  }
  if (lines.empty()) return;
  throw ConfigError(
      "model",
      fmt::format("{} is another model than that of {} ({}): {}; restore the file, or "
                  "start a new run with another run.dir and init.weights",
                  ours.source_path.string(), from, theirs.string(),
                  fmt::join(lines, "; ")));
}

}  // namespace longhaul
