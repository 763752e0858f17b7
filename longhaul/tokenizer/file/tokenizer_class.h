#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::tokenizer {

/// Returns the class that AutoTokenizer of transformers 5 takes for a tokenizer.json,
/// without the ending "Fast"; empty for a class that reads the file as it is. `named` is
/// tokenizer_class of tokenizer_config.json, else of config.json, and `model_type` is
/// that of config.json. Both may be empty.
std::string auto_tokenizer_class(std::string named, std::string_view model_type,
                                 const Json& root);

/// What a class makes of a tokenizer.json: parts of its own over the file's vocabulary.
struct BuiltTokenizer {
  /// Parts of tokenizer.json that the class replaces, such as "pre_tokenizer".
  std::vector<std::string> other_parts;
  /// Special tokens that the class has if tokenizer_config.json names none.
  std::vector<std::string> tokens;
  /// The tokens that the class puts around a text; absent if tokenizer.json decides.
  std::optional<std::vector<std::string>> around;
};

/// Returns what a class builds, or nothing for a class that reads the file or is unknown.
/// `config` is tokenizer_config.json, or null.
std::optional<BuiltTokenizer> build_as_class(const std::string& name, const Json& config,
                                             const Json& root);

/// Returns whether a class of transformers 5 gives the pieces of a SentencePiece `.model`
/// other ids than their indices in the file.
bool moves_pieces(std::string_view name);

/// Whether BOS and EOS stand around a text.
struct Ends {
  bool bos = false;
  bool eos = false;
  bool operator==(const Ends&) const = default;
};

/// Returns what a class puts around a text that a SentencePiece `.model` splits into
/// pieces. Returns nothing for a class with rules of its own. `config` is
/// tokenizer_config.json, or null.
std::optional<Ends> ends_of_class(std::string_view name, const Json& config);

/// Returns whether a class of transformers 5 does not read a tokenizer.json as it is, by
/// rules that this program does not know.
bool is_class_with_own_rules(std::string_view name);

}  // namespace longhaul::tokenizer
