#pragma once

#include <span>
#include <string>
#include <vector>

#include "longhaul/families/model_config.h"

namespace longhaul {

/// A field of a model's description that two of them have different values of.
struct ModelDifference {
  std::string field;  ///< as config.json calls it
  std::string ours;
  std::string theirs;
  bool of_result = false;  ///< it changes what the weights compute
};

/// Every field that differs. What config.json does not say of the model (where it was
/// read from, names that are not known, the spelling of a dtype) is not compared.
std::vector<ModelDifference> differing_fields(const ModelConfig& ours,
                                              const ModelConfig& theirs);

/// Of another Hugging Face directory's or checkpoint's config.json, whose `text` it is:
/// ConfigError that names both files, each field and both values. `from` is what goes
/// on; `theirs` the file that the text is from. Where the text cannot be read as it is,
/// since an earlier program took it for another model, it is read with `overrides`: what
/// the run says of such fields is what its past must have meant.
void check_same_model(const ModelConfig& ours, std::string_view text,
                      const fs::path& theirs, const std::string& from,
                      std::span<const ModelOverride> overrides = {});

}  // namespace longhaul
