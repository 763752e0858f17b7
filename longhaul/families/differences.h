#pragma once

#include <span>
#include <string>
#include <vector>

#include "longhaul/families/model_config.h"

namespace longhaul {

/// A field of config.json that has different values in two models.
struct ModelDifference {
  std::string field;  ///< its name in config.json
  std::string ours;
  std::string theirs;
  bool of_result = false;  ///< the field changes what the weights compute
};

/// Returns every field that differs. The path of config.json, fields that are not read,
/// and the spelling of a dtype are not compared.
std::vector<ModelDifference> differing_fields(const ModelConfig& ours,
                                              const ModelConfig& theirs);

/// Compares the model with `text`, the config.json of another Hugging Face directory or
/// of a checkpoint. Throws ConfigError with both files, each differing field and both
/// values. `from` names the checkpoint that the run continues, and `theirs` is the file
/// that holds the text. This version may refuse a text that an earlier version wrote. It
/// then reads the text with `overrides`, the values that the run gives to the refused
/// fields, since the earlier version computed with these values.
void check_same_model(const ModelConfig& ours, std::string_view text,
                      const fs::path& theirs, const std::string& from,
                      std::span<const ModelOverride> overrides = {});

}  // namespace longhaul
