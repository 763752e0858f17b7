#include "longhaul/tokenizer/file/auto_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/json/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/file/tokenizer_class.h"

namespace longhaul::tokenizer {
namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kAdded = "added_tokens.json";
constexpr const char* kDecoder = "added_tokens_decoder";
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";
constexpr std::array kMatching = {"lstrip", "rstrip", "single_word", "normalized"};
constexpr size_t kMostShown = 8;

/// Returns the JSON object in a file of the directory; null if the file is absent.
Json read_beside(const fs::path& dir, const char* name) {
  const fs::path file = dir / name;
  if (!fs::exists(file)) return {};
  Json json = read_json(file);
  if (!json.is_object()) fail_input("tokenizer", "{}: expected an object", file.string());
  return json;
}

/// Returns config.json, or null if it cannot be read. What is wrong with config.json is
/// reported when the model is loaded.
Json read_model(const fs::path& dir) {
  try {
    return read_beside(dir, "config.json");
  } catch (const InputError&) {
    return {};
  }
}

bool has(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && !json[key].is_null();
}

/// Returns a string, or the `content` of an object; empty for anything else.
std::string token_of(const Json& json) {
  return json.is_string() ? json.get<std::string>()
                          : std::string(text_at(json, "content"));
}

/// The content of the files beside a tokenizer's file, merged as AutoTokenizer does. With
/// added_tokens_decoder the other two files are ignored; otherwise
/// special_tokens_map.json overrides tokenizer_config.json.
struct Beside {
  Json config = Json::object();
  /// Tokens, each with the key and the file that name it.
  std::vector<std::pair<std::string, std::string>> tokens;
};

class Collector {
 public:
  explicit Collector(const fs::path& dir) {
    const Json config = read_beside(dir, kConfig);
    if (config.is_object()) beside_.config = config;
    if (has(config, kDecoder)) {
      for (const Json& token : config[kDecoder]) {
        add(token, fmt::format("{} of {}", kDecoder, kConfig));
      }
      named_in(config, kConfig);
      return;
    }
    const Json more = read_beside(dir, kAdded);
    for (const auto& [token, id] : more.items()) add(Json(token), kAdded);
    const Json map = read_beside(dir, kMap);
    named_in(map, kMap);
    named_in(config, kConfig, map);
    for (const auto& [key, value] : map.items()) beside_.config[key] = value;
  }
  Beside take() { return std::move(beside_); }

 private:
  /// Adds the tokens that `json` names. Ignores keys that `over` has too.
  void named_in(const Json& json, const std::string& file, const Json& over = {}) {
    const bool extra = has(json, kExtra) && !json[kExtra].empty();
    for (const auto& [key, value] : json.items()) {
      if (has(over, key.c_str())) continue;
      if (key.ends_with("_token")) add(value, fmt::format("{} of {}", key, file));
      if (key != kExtra && (key != kAdditional || extra)) continue;
      if (!value.is_structured()) continue;
      for (const Json& token : value) add(token, fmt::format("{} of {}", key, file));
    }
  }
  void add(const Json& json, const std::string& place) {
    const std::string token = token_of(json);
    const bool fresh = !token.empty() && seen_.insert(token).second;
    if (fresh) beside_.tokens.emplace_back(token, place);
  }

  Beside beside_;
  std::set<std::string> seen_;
};

/// Returns added_tokens of a tokenizer.json by their text.
std::map<std::string, const Json*> added_of(const Json& root) {
  std::map<std::string, const Json*> added;
  if (!has(root, "added_tokens")) return added;
  for (const Json& token : root["added_tokens"]) added[token_of(token)] = &token;
  return added;
}

/// The class that AutoTokenizer takes, and words for a message that also tell whether
/// tokenizer_class or model_type leads to it.
struct NamedClass {
  std::string name;  ///< empty for a class that reads the file as it is
  std::string why;
};

NamedClass class_of(const fs::path& dir, const Json& config, const Json& root) {
  const Json model = read_model(dir);
  std::string named(text_at(config, "tokenizer_class"));
  if (named.empty()) named = text_at(model, "tokenizer_class");
  const std::string type(text_at(model, "model_type"));
  const std::string name = auto_tokenizer_class(named, type, root);
  return {name, named.starts_with(name)
                    ? fmt::format("the tokenizer_class {}", named)
                    : fmt::format("the class {} (of model_type {})", name, type)};
}

/// Returns the end of a message, which says how the user gets the ids of transformers.
std::string save_again(const fs::path& file) {
  return fmt::format(
      "to have the same tokens here, save the tokenizer with transformers, "
      "AutoTokenizer.from_pretrained(\"{}\").save_pretrained(\"OUT\"), and give OUT",
      file.has_parent_path() ? file.parent_path().string() : ".");
}

std::string tell_moved_pieces(const std::string& why, const fs::path& file) {
  return fmt::format(
      "{} gives the pieces of {} other ids than the file (mostly one more), and longhaul "
      "takes the file's; {}",
      why, file.string(), save_again(file));
}

class Differences {
 public:
  Differences(const fs::path& file, const Json& root, const Tokenizer& tokenizer)
      : file_(file), root_(root), tokenizer_(tokenizer), added_(added_of(root)) {}

  std::vector<std::string> find() {
    const fs::path dir = file_.parent_path();
    const Beside beside = Collector(dir).take();
    std::vector<std::string> missing;
    for (const auto& [token, place] : beside.tokens) {
      if (lacks(token)) missing.push_back(fmt::format("\"{}\" ({})", token, place));
    }
    say_missing(missing);
    if (root_.is_object()) say_other_flags(beside.config);
    say_class(dir, beside);
    return std::move(said_);
  }

 private:
  /// Returns whether encoding never finds a token in a text, because the token is absent,
  /// or is a piece of the vocabulary and no added token.
  bool lacks(const std::string& token) const {
    if (root_.is_object()) return !added_.contains(token);
    return !tokenizer_.token_to_id(token);
  }

  void say_missing(const std::vector<std::string>& missing) {
    if (missing.empty()) return;
    said_.push_back(fmt::format(
        "{} beside {} {} not among its added tokens: {}; AutoTokenizer adds {}, while "
        "longhaul cuts {} as any text; {}",
        missing.size() == 1 ? "a token" : fmt::format("{} tokens", missing.size()),
        file_.string(), missing.size() == 1 ? "is" : "are", listed(missing, kMostShown),
        missing.size() == 1 ? "it" : "them", missing.size() == 1 ? "it" : "them",
        save_again(file_)));
  }

  /// Adds a sentence if tokenizer_config.json has other flags for added tokens than the
  /// file, such as lstrip, which decide how the tokens are found in a text.
  void say_other_flags(const Json& config) {
    if (!has(config, kDecoder)) return;
    std::vector<std::string> others;
    for (const Json& token : config[kDecoder]) {
      const auto found = added_.find(token_of(token));
      if (found == added_.end()) continue;
      for (const char* key : kMatching) {
        if (!token.contains(key) || !found->second->contains(key)) continue;
        if (token[key] == (*found->second)[key]) continue;
        others.push_back(fmt::format(
            "\"{}\" ({} is {} there, {} in {})", found->first, key, json_text(token[key]),
            json_text((*found->second)[key]), file_.filename().string()));
      }
    }
    if (others.empty()) return;
    said_.push_back(fmt::format(
        "{} beside {} has other rules for added tokens: {}; AutoTokenizer "
        "uses those rules, but longhaul uses the file's own; {}",
        kConfig, file_.string(), listed(others, kMostShown), save_again(file_)));
  }

  void say_class(const fs::path& dir, const Beside& beside) {
    const auto [name, why] = class_of(dir, beside.config, root_);
    if (!root_.is_object()) {
      if (!name.empty()) say_class_of_model(name, why, beside.config);
      return;
    }
    if (is_class_with_own_rules(name)) {
      said_.push_back(
          fmt::format("{} does not read {} as it is but builds a tokenizer of its own, "
                      "which longhaul does not know; AutoTokenizer may cut text "
                      "otherwise than longhaul, which reads the file; {}",
                      why, file_.string(), read_the_file()));
      return;
    }
    const auto built = build_as_class(name, beside.config, root_);
    if (!built) return;
    std::vector<std::string> others;
    for (const std::string& part : built->other_parts)
      others.push_back("another " + part);
    std::vector<std::string> tokens;
    for (const std::string& token : built->tokens) {
      const bool twice = std::ranges::count(tokens, fmt::format("\"{}\"", token)) > 0;
      if (lacks(token) && !twice) tokens.push_back(fmt::format("\"{}\"", token));
    }
    if (!tokens.empty())
      others.push_back("more tokens (" + listed(tokens, kMostShown) + ")");
    if (built->around && !stands_around(*built->around)) {
      others.push_back(built->around->empty()
                           ? "nothing around a text"
                           : fmt::format("\"{}\" around a text",
                                         fmt::join(*built->around, "\" and \"")));
    }
    if (others.empty()) return;
    said_.push_back(fmt::format(
        "{} builds its tokenizer anew from the vocabulary of {}, with {}: AutoTokenizer "
        "of transformers 5 cuts text otherwise than longhaul, which reads the file; {}",
        why, file_.string(), fmt::join(others, ", "), read_the_file()));
  }

  /// Adds a sentence if the class `name` does with a `.model` what this program does not:
  /// gives the pieces other ids than sentencepiece, follows rules of its own, or puts
  /// other tokens around a text.
  void say_class_of_model(const std::string& name, const std::string& why,
                          const Json& config) {
    if (moves_pieces(name)) {
      said_.push_back(tell_moved_pieces(why, file_));
      return;
    }
    const auto theirs = ends_of_class(name, config);
    if (!theirs) {
      said_.push_back(fmt::format(
          "{} does not take {} as it is but builds a tokenizer of its own, mostly with "
          "special tokens around a text: AutoTokenizer may give other ids than longhaul, "
          "which reads the file; {}",
          why, file_.string(), save_again(file_)));
      return;
    }
    const Ends ours{!tokenizer_.special_prefix().empty(),
                    !tokenizer_.special_suffix().empty()};
    if (*theirs == ours) return;
    const auto words = [](const Ends& ends) {
      if (ends.bos && ends.eos) return "BOS and EOS around";
      return ends.bos ? "BOS before" : ends.eos ? "EOS after" : "nothing around";
    };
    said_.push_back(
        fmt::format("{} puts {} a text in transformers 5, and longhaul puts {} it; say "
                    "which is meant with add_bos_token and add_eos_token in {}",
                    why, words(*theirs), words(ours), kConfig));
  }

  static std::string read_the_file() {
    return fmt::format(
        "load the file there with PreTrainedTokenizerFast.from_pretrained, or, for all "
        "models but qwen2, write \"tokenizer_class\": \"PreTrainedTokenizerFast\" into "
        "{}",
        kConfig);
  }

  /// Returns whether this tokenizer puts these tokens around a text: the first before it,
  /// and the others after it.
  bool stands_around(const std::vector<std::string>& around) const {
    std::vector<TokenId> ids;
    for (const std::string& token : around) {
      const auto id = tokenizer_.token_to_id(token);
      if (!id) return false;
      ids.push_back(*id);
    }
    const std::vector<TokenId> before(ids.begin(),
                                      ids.begin() + std::min<size_t>(1, ids.size()));
    const std::vector<TokenId> after(
        ids.begin() + static_cast<std::ptrdiff_t>(before.size()), ids.end());
    return tokenizer_.special_prefix() == before && tokenizer_.special_suffix() == after;
  }

  const fs::path& file_;
  const Json& root_;
  const Tokenizer& tokenizer_;
  std::map<std::string, const Json*> added_;
  std::vector<std::string> said_;
};

}  // namespace

std::vector<std::string> auto_tokenizer_differences(const fs::path& file,
                                                    const Json& root,
                                                    const Tokenizer& tokenizer) {
  return Differences(file, root, tokenizer).find();
}

void refuse_moved_pieces(const Tokenizer& tokenizer) {
  if (tokenizer.files().empty()) return;
  const fs::path& file = tokenizer.files().front();
  if (file.extension() != ".model") return;
  const fs::path dir = file.parent_path();
  const auto [name, why] = class_of(dir, Collector(dir).take().config, {});
  if (moves_pieces(name)) fail_input("tokenizer", "{}", tell_moved_pieces(why, file));
}

}  // namespace longhaul::tokenizer
