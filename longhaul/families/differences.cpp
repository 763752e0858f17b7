#include "longhaul/families/differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "longhaul/base/error.h"
#include "longhaul/families/family.h"

namespace longhaul {
namespace {

std::vector<families::Field> describe(const ModelConfig& model) {
  const families::Family* family = families::find_family(model.model_type);
  LH_ASSERT(family != nullptr, "no family '{}'", model.model_type);
  std::vector<families::Field> fields = {
      {"model_type", model.model_type, true},
      {"vocab_size", fmt::format("{}", model.vocab_size), true}};
  for (families::Field& field : family->settings(model)) {
    fields.push_back(std::move(field));
  }
  fields.push_back({"max_position_embeddings",
                    fmt::format("{}", model.max_position_embeddings), false});
  fields.push_back({"bos_token_id", fmt::format("{}", model.bos_token_ids), false});
  fields.push_back({"eos_token_id", fmt::format("{}", model.eos_token_ids), false});
  return fields;
}

ModelConfig parse_saved(std::string_view text, const fs::path& file,
                        std::span<const ModelOverride> overrides) {
  try {
    try {
      return parse_model_config(text, file);
    } catch (const InputError&) {
      if (overrides.empty()) throw;
      return parse_model_config(text, file, overrides);
    }
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
  const std::vector<families::Field> our = describe(ours);
  const std::vector<families::Field> their = describe(theirs);
  std::vector<ModelDifference> result;
  if (ours.model_type != theirs.model_type) {
    return {{"model_type", ours.model_type, theirs.model_type, true}};
  }
  for (size_t i = 0; i < our.size(); ++i) {
    if (our[i].value == their[i].value) continue;
    result.push_back({our[i].name, our[i].value, their[i].value, our[i].of_result});
  }
  return result;
}

void check_same_model(const ModelConfig& ours, std::string_view text,
                      const fs::path& theirs, const std::string& from,
                      std::span<const ModelOverride> overrides) {
  std::vector<std::string> lines;
  const ModelConfig saved = parse_saved(text, theirs, overrides);
  for (const ModelDifference& d : differing_fields(ours, saved)) {
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
