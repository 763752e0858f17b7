#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::tokenizer {

/// Which class AutoTokenizer of transformers 5 takes for a tokenizer.json, without the
/// ending "Fast"; empty for one that reads the file as it is. `named`: tokenizer_class of
/// tokenizer_config.json, else of config.json; `model_type`: of config.json. Both may be
/// empty.
std::string auto_tokenizer_class(std::string named, std::string_view model_type,
                                 const Json& root);

/// What a class makes of a tokenizer.json: its own parts over the file's vocabulary.
struct BuiltTokenizer {
  /// Parts of tokenizer.json that the class has otherwise: "pre_tokenizer".
  std::vector<std::string> other_parts;
  /// Special tokens that the class has where tokenizer_config.json names none.
  std::vector<std::string> tokens;
  /// The tokens around a text; nothing: as the file says.
  std::optional<std::vector<std::string>> around;
};

/// Nothing for a class that reads the file, or that is not known here. `config`:
/// tokenizer_config.json, or null.
std::optional<BuiltTokenizer> build_as_class(const std::string& name, const Json& config,
                                             const Json& root);

/// Whether a class of transformers 5 does not read a tokenizer.json as it is, by rules
/// that are not known here.
bool is_class_with_own_rules(std::string_view name);

}  // namespace longhaul::tokenizer
