#include "longhaul/checkpoint/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <unordered_set>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/file/json_node.h"
#include "longhaul/tokenizer/file/sentencepiece_file.h"
#include "longhaul/tokenizer/file/tokenizer_json.h"
#include "longhaul/tokenizer/split/patterns.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::checkpoint {
namespace {

using tokenizer::JsonNode;
using tokenizer::SentencePieceFile;
using tokenizer::SplitPattern;

constexpr const char* kModelKey = "tokenizer.ggml.model";
/// The SentencePiece mark of a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
/// The letter by which byte-level vocabularies write a space.
constexpr std::string_view kSpaceLetter = "\xC4\xA0";

/// The kinds of tokens of llama.cpp. SentencePiece numbers the kinds of pieces alike.
enum class TokenKind : int32_t {
  Normal = 1,
  Unknown,
  Control,
  UserDefined,
  Unused,
  Byte,
};
static_assert(static_cast<int>(SentencePieceFile::PieceType::Byte) ==
              static_cast<int>(TokenKind::Byte));

/// A token that stands beside the model's vocabulary.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false;
};

/// The parts of a tokenizer's directory.
struct TokenizerDirectory {
  fs::path dir;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  Json settings = Json::object();  ///< tokenizer_config.json
  Json config = Json::object();    ///< config.json
  int64_t vocab_size = 0;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) const {
    fail_input("gguf",
               "{}: {}. llama.cpp has no tokenizer like this; --no-tokenizer writes the "
               "file without one",
               dir.string(), fmt::format(what, std::forward<Args>(args)...));
  }
};

Json object_beside(const fs::path& file) {
  if (!fs::exists(file)) return Json::object();
  Json json = read_json(file);
  return json.is_object() ? json : Json::object();
}

// ---- the tokens ----

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
  std::vector<float> scores;  ///< of SentencePiece alone

  void set(int64_t id, std::string text, TokenKind kind, float score) {
    const auto at = static_cast<size_t>(id);
    texts[at] = std::move(text);
    kinds[at] = static_cast<int32_t>(kind);
    scores[at] = score;
  }
};

/// Returns a table of unused tokens.
Tokens unused_tokens(int64_t count) {
  constexpr float kUnusedScore = -10000.0F;
  Tokens tokens;
  const auto size = static_cast<size_t>(count);
  tokens.texts.resize(size);
  tokens.kinds.resize(size);
  tokens.scores.resize(size);
  for (int64_t id = 0; id < count; ++id) {
    tokens.set(id, fmt::format("[PAD{}]", id), TokenKind::Unused, kUnusedScore);
  }
  return tokens;
}

/// Returns whether llama.cpp's converter takes an added token for a special one, whatever
/// the file says.
bool looks_special(std::string_view text) {
  constexpr std::string_view kOpens = "<\xEF\xBD\x9C", kCloses = "\xEF\xBD\x9C>";
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with(kOpens) && text.ends_with(kCloses)) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

std::string with_replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

void set_added(Tokens& tokens, const AddedToken& added) {
  constexpr float kAddedScore = -1000.0F;
  const bool special = added.special || looks_special(added.content);
  tokens.set(added.id,
             special ? added.content : with_replaced(added.content, kSpaceMark, " "),
             special ? TokenKind::Control : TokenKind::UserDefined, kAddedScore);
}

/// Throws InputError if two tokens are the same text, which ends llama.cpp.
void check_different(const TokenizerDirectory& in, const Tokens& tokens) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& text : tokens.texts) {
    if (!seen.insert(text).second) in.refuse("two tokens are \"{}\"", text);
  }
}

// ---- what stands around a text, and which tokens are special ----

/// Returns the token that tokenizer_config.json or config.json names.
std::optional<int64_t> named_id(const TokenizerDirectory& in, const std::string& kind) {
  const auto token = in.settings.find(kind + "_token");
  std::optional<tokenizer::TokenId> id;
  if (token != in.settings.end() && token->is_string()) {
    id = in.tokenizer->token_to_id(token->get<std::string>());
  } else if (token != in.settings.end() && token->is_object() &&
             token->value("content", Json()).is_string()) {
    id = in.tokenizer->token_to_id(token->at("content").get<std::string>());
  }
  if (id) return int64_t{*id};
  const auto number = in.config.find(kind + "_token_id");
  if (number == in.config.end() || !number->is_number_unsigned()) return std::nullopt;
  return number->get<int64_t>();
}

/// Sets whether a token stands at an end of each text, and returns the token.
std::optional<int64_t> set_end(const TokenizerDirectory& in, const std::string& kind,
                               const std::vector<tokenizer::TokenId>& around,
                               format::GgufValues& values) {
  const std::optional<int64_t> named = named_id(in, kind);
  if (around.size() > 1) {
    in.refuse("{} tokens stand {} each text, of which one alone can be added",
              around.size(), kind == "bos" ? "before" : "behind");
  }
  if (!around.empty() && named && *named != around.front()) {
    in.refuse("the token {} stands {} each text, and {}_token is the token {}",
              around.front(), kind == "bos" ? "before" : "behind", kind, *named);
  }
  values.emplace_back(fmt::format("tokenizer.ggml.add_{}_token", kind), !around.empty());
  return around.empty() ? named : int64_t{around.front()};
}

void set_special(const TokenizerDirectory& in, GgufTokenizer& out) {
  static constexpr std::array<std::pair<const char*, const char*>, 4> kOthers = {
      {{"unk", "unknown"}, {"sep", "seperator"}, {"pad", "padding"}, {"mask", "mask"}}};
  const auto set = [&](const std::string& name, std::optional<int64_t> id) {
    if (!id || *id >= in.vocab_size) return;
    out.values.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name),
                            static_cast<uint32_t>(*id));
  };
  set("bos", set_end(in, "bos", in.tokenizer->special_prefix(), out.values));
  const auto eos = set_end(in, "eos", in.tokenizer->special_suffix(), out.values);
  set("eos", eos);
  out.values.emplace_back("tokenizer.ggml.add_sep_token", false);
  if (!eos) {
    out.notes.push_back(
        "the tokenizer names no eos_token, in whose place llama.cpp takes a token of its "
        "own: name one in tokenizer_config.json");
  }
  for (const auto& [kind, name] : kOthers) set(name, named_id(in, kind));
}

void set_template(const TokenizerDirectory& in, GgufTokenizer& out) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 24;
  const auto own = in.settings.find("chat_template");
  const fs::path file = in.dir / "chat_template.jinja";
  std::optional<std::string> found;
  if (own != in.settings.end() && own->is_string()) {
    found = own->get<std::string>();
  } else if (own != in.settings.end() && own->is_array()) {
    for (const Json& one : *own) {
      const Json text = one.is_object() ? one.value("template", Json()) : Json();
      if (!text.is_string() || one.value("name", Json()) != "default") continue;
      found = text.get<std::string>();
    }
    out.notes.push_back("of several chat templates, the one named default goes along");
  }
  if (fs::exists(file)) {
    std::string text = read_text(file, kMostBytes);
    if (found && *found != text) {
      out.notes.push_back(
          "chat_template.jinja and tokenizer_config.json have different templates: that "
          "of chat_template.jinja goes along, as in training and transformers; "
          "llama.cpp's converter takes the other one");
    }
    found = std::move(text);
  }
  if (found) out.values.emplace_back("tokenizer.chat_template", std::move(*found));
}

// ---- byte-level BPE ----

/// Returns the steps of a pre-tokenizer. A step is "bytes", "words" (ByteLevel with
/// GPT-2's pattern), "digits", or the text of a regular expression.
std::vector<std::string> steps_of(const TokenizerDirectory& in,
                                  const JsonNode& pre_tokenizer) {
  std::vector<std::string> steps;
  const auto one = [&](const JsonNode& step) {
    const std::string type = step.type();
    if (type == "ByteLevel") {
      if (step.flag("add_prefix_space", true)) {
        in.refuse("ByteLevel has add_prefix_space");
      }
      steps.emplace_back(step.flag("use_regex", true) ? "words" : "bytes");
    } else if (type == "Digits" && step.flag("individual_digits", false)) {
      steps.emplace_back("digits");
    } else if (type == "Split" && step.member("pattern").json().contains("Regex")) {
      const std::string& regex = step.member("pattern").member("Regex").text();
      const std::string& behavior = step.member("behavior").text();
      const bool invert = step.flag("invert", false);
      // A known pattern matches every text, so that nothing is removed.
      const bool keeps_all =
          behavior == "Removed" && invert && tokenizer::split_from_regex(regex);
      if (behavior != "Isolated" && !keeps_all) {
        in.refuse("Split has the behavior {}{}", behavior, invert ? ", inverted" : "");
      }
      steps.push_back(regex);
    } else {
      in.refuse("the pre-tokenizer {}", type);
    }
  };
  if (pre_tokenizer.is_null()) in.refuse("there is no pre-tokenizer");
  if (pre_tokenizer.type() != "Sequence") {
    one(pre_tokenizer);
  } else {
    for (const JsonNode& step : pre_tokenizer.member("pretokenizers").elements()) {
      one(step);
    }
  }
  return steps;
}

/// A pre-tokenizer of llama.cpp (src/llama-vocab.cpp).
struct PreTokenizer {
  const char* name;
  std::vector<std::string> steps;
  bool ignores_merges = false;  ///< a piece that is a token is not merged
};

const std::vector<PreTokenizer>& known_pre_tokenizers() {
  static const std::string digits = R"(\p{N}{1,3})";
  static const std::string east =
      "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";
  static const std::vector<PreTokenizer> known = {
      {"gpt-2", {"words"}},
      {"smollm", {"digits", "words"}},
      {"llama-bpe", {"llama3", "bytes"}, true},
      // DBRX has the pattern of Llama 3 and merges as usual.
      {"dbrx", {"llama3", "bytes"}},
      {"qwen2", {"qwen2", "bytes"}},
      {"gpt-4o", {"o200k", "bytes"}},
      {"qwen35",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "bytes"}},
      {"tekken",
       {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "bytes"},
       true},
      {"deepseek-v3",
       {digits, east,
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
        "\r\n"
        R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
        "\r\n"
        R"(]*|\s*[)"
        "\r\n"
        R"(]+|\s+(?!\S)|\s+)",
        "bytes"}},
  };
  return known;
}

/// Returns the name under which known_pre_tokenizers() has a step.
std::string name_of_step(const std::string& step) {
  const auto pattern = tokenizer::split_from_regex(step);
  if (!pattern) return step;
  switch (*pattern) {
    case SplitPattern::Gpt2:
      return "words";
    case SplitPattern::Llama3:
      return "llama3";
    case SplitPattern::Qwen2:
      return "qwen2";
    case SplitPattern::O200k:
      return "o200k";
    case SplitPattern::None:
      break;
  }
  return step;
}

std::string pre_tokenizer_name(const TokenizerDirectory& in, const JsonNode& root) {
  const std::vector<std::string> given = steps_of(in, root.member("pre_tokenizer"));
  std::vector<std::string> steps;
  std::ranges::transform(given, std::back_inserter(steps), name_of_step);
  // GPT-2's pattern as a step of its own is what ByteLevel has within itself.
  if (steps.size() >= 2 && steps[steps.size() - 2] == "words" &&
      steps.back() == "bytes") {
    steps.pop_back();
  }
  const bool ignores = root.member("model").flag("ignore_merges", false);
  bool pattern_known = false;
  for (const PreTokenizer& one : known_pre_tokenizers()) {
    if (one.steps != steps) continue;
    pattern_known = true;
    if (one.ignores_merges == ignores) return one.name;
  }
  if (pattern_known) {
    in.refuse("ignore_merges is {}, and the split pattern is {}", ignores,
              fmt::join(given, ", then "));
  }
  in.refuse("the split pattern is {}", fmt::join(given, ", then "));
}

void check_normalizer(const TokenizerDirectory& in, const JsonNode& normalizer,
                      std::vector<std::string>& notes) {
  if (normalizer.is_null()) return;
  if (normalizer.type() == "Sequence") {
    for (const JsonNode& one : normalizer.member("normalizers").elements()) {
      check_normalizer(in, one, notes);
    }
  } else if (normalizer.type() == "NFC") {
    notes.emplace_back(
        "the tokenizer's normalizer is NFC, which llama.cpp does not apply: texts that "
        "are not in this form get other ids there");
  } else {
    in.refuse("the normalizer {}", normalizer.type());
  }
}

std::vector<std::string> merges_of(const JsonNode& model) {
  std::vector<std::string> merges;
  for (const JsonNode& merge : model.member("merges").elements()) {
    if (merge.json().is_string()) {
      merges.push_back(merge.text());
      continue;
    }
    const std::vector<JsonNode> pair = merge.elements();
    if (pair.size() != 2) merge.fail("expected two tokens");
    merges.push_back(fmt::format("{} {}",
                                 with_replaced(pair[0].text(), " ", kSpaceLetter),
                                 with_replaced(pair[1].text(), " ", kSpaceLetter)));
  }
  return merges;
}

std::vector<AddedToken> added_in(const JsonNode& root, std::vector<std::string>& notes) {
  std::vector<AddedToken> added;
  if (root.member("added_tokens").is_null()) return added;
  for (const JsonNode& node : root.member("added_tokens").elements()) {
    added.push_back({int64_t{node.member("id").id()}, node.member("content").text(),
                     node.flag("special", false)});
    for (const char* rule : {"lstrip", "rstrip", "single_word"}) {
      if (!node.flag(rule, false)) continue;
      notes.push_back(fmt::format(
          "the token \"{}\" has {}, which llama.cpp does not know: texts with it may get "
          "other ids there",
          added.back().content, rule));
    }
  }
  return added;
}

void describe_bytes(const TokenizerDirectory& in, const JsonNode& root,
                    GgufTokenizer& out) {
  const JsonNode model = root.member("model");
  check_normalizer(in, root.member("normalizer"), out.notes);
  if (root.member("decoder").is_null() || root.member("decoder").type() != "ByteLevel") {
    in.refuse("the decoder is not ByteLevel");
  }
  for (const char* part : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode text = model.member(part);
    if (!text.is_null() && !text.text().empty()) in.refuse("the model has {}", part);
  }
  Tokens tokens = unused_tokens(in.vocab_size);
  for (int64_t id = 0; id < in.tokenizer->vocab_size(); ++id) {
    auto text = in.tokenizer->id_to_token(static_cast<tokenizer::TokenId>(id));
    if (text) tokens.set(id, std::move(*text), TokenKind::Normal, 0.0F);
  }
  for (const AddedToken& added : added_in(root, out.notes)) set_added(tokens, added);
  check_different(in, tokens);
  out.values = {{kModelKey, std::string("gpt2")},
                {"tokenizer.ggml.pre", pre_tokenizer_name(in, root)},
                {"tokenizer.ggml.tokens", std::move(tokens.texts)},
                {"tokenizer.ggml.token_type", std::move(tokens.kinds)},
                {"tokenizer.ggml.merges", merges_of(model)}};
}

// ---- SentencePiece ----

/// Returns the added tokens of the files beside tokenizer.model, as the converter reads
/// them, and those of tokenizer.json.
std::vector<AddedToken> added_beside(const TokenizerDirectory& in, const Json& root,
                                     std::vector<std::string>& notes) {
  std::vector<AddedToken> added;
  const Json listed = object_beside(in.dir / "added_tokens.json");
  for (const auto& [content, id] : listed.items()) {
    if (id.is_number_unsigned()) added.push_back({id.get<int64_t>(), content, false});
  }
  if (root.is_object()) {
    const std::string name = (in.dir / "tokenizer.json").string();
    std::ranges::move(added_in(JsonNode(root, name, ""), notes),
                      std::back_inserter(added));
  }
  const auto decoder = in.settings.find("added_tokens_decoder");
  if (decoder == in.settings.end() || !decoder->is_object()) return added;
  for (const auto& [id, token] : decoder->items()) {
    if (id.empty() || id.size() > 9 || !std::ranges::all_of(id, is_digit)) continue;
    if (!token.is_object() || !token.value("content", Json()).is_string()) continue;
    added.push_back({std::stoll(id), token["content"].get<std::string>(),
                     token.value("special", Json()) == Json(true)});
  }
  return added;
}

void check_pieces(const TokenizerDirectory& in, const SentencePieceFile& file) {
  if (file.model_type != SentencePieceFile::ModelType::Bpe) {
    in.refuse("tokenizer.model is not of the kind BPE");
  }
  if (!file.byte_fallback) in.refuse("tokenizer.model has no byte_fallback");
  if (!file.charsmap.empty()) in.refuse("tokenizer.model normalizes its text");
  if (file.remove_extra_whitespaces) {
    in.refuse("tokenizer.model removes extra whitespace");
  }
  if (file.whitespace_as_suffix) in.refuse("tokenizer.model has spaces as suffixes");
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const auto other = in.tokenizer->id_to_token(static_cast<tokenizer::TokenId>(id));
    const bool normal = file.pieces[id].type == SentencePieceFile::PieceType::Normal;
    if (!normal || !other || *other == file.pieces[id].text) continue;
    in.refuse("token {} is \"{}\" in tokenizer.model and \"{}\" in tokenizer.json", id,
              file.pieces[id].text, *other);
  }
}

void describe_pieces(const TokenizerDirectory& in, const fs::path& model,
                     const Json& root, GgufTokenizer& out) {
  const MappedFile mapped(model);
  const SentencePieceFile file =
      tokenizer::parse_sentencepiece(mapped.text(), model.string());
  check_pieces(in, file);
  if (std::ssize(file.pieces) > in.vocab_size) {
    in.refuse("tokenizer.model has {} tokens, and the model {}", file.pieces.size(),
              in.vocab_size);
  }
  Tokens tokens = unused_tokens(in.vocab_size);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    tokens.set(static_cast<int64_t>(id), piece.text, static_cast<TokenKind>(piece.type),
               piece.score);
  }
  for (const AddedToken& added : added_beside(in, root, out.notes)) {
    if (added.id < in.vocab_size) set_added(tokens, added);
  }
  check_different(in, tokens);
  out.values = {{kModelKey, std::string("llama")},
                {"tokenizer.ggml.pre", std::string("default")},
                {"tokenizer.ggml.tokens", std::move(tokens.texts)},
                {"tokenizer.ggml.scores", std::move(tokens.scores)},
                {"tokenizer.ggml.token_type", std::move(tokens.kinds)}};
  if (!file.add_dummy_prefix) {
    out.values.emplace_back("tokenizer.ggml.add_space_prefix", false);
  }
}

}  // namespace

GgufTokenizer describe_gguf_tokenizer(const fs::path& dir, int64_t vocab_size) {
  const fs::path file = dir / "tokenizer.json", pieces = dir / "tokenizer.model";
  TokenizerDirectory in;
  in.dir = dir;
  in.vocab_size = vocab_size;
  in.tokenizer = tokenizer::Tokenizer::load(dir);
  in.settings = object_beside(dir / "tokenizer_config.json");
  in.config = object_beside(dir / "config.json");
  if (in.tokenizer->vocab_size() > vocab_size) {
    in.refuse("the tokenizer has {} tokens, and the model {}", in.tokenizer->vocab_size(),
              vocab_size);
  }
  const std::string name = file.string();
  Json root;
  bool bytes = false;
  if (fs::exists(file)) {
    root = tokenizer::read_tokenizer_root(read_text(file), name);
    const JsonNode model = JsonNode(root, name, "").member("model");
    const JsonNode kind = model.member("type");
    bytes =
        (kind.is_null() || kind.text() == "BPE") && !model.flag("byte_fallback", false);
    if (!bytes && !fs::exists(pieces)) {
      in.refuse("tokenizer.json is of the kind {}{}, and there is no tokenizer.model",
                kind.is_null() ? "BPE" : kind.text(),
                model.flag("byte_fallback", false) ? " with byte_fallback" : "");
    }
  }
  GgufTokenizer out;
  out.notes = in.tokenizer->warnings();
  if (bytes) {
    describe_bytes(in, JsonNode(root, name, ""), out);
  } else {
    const auto found = tokenizer::find_tokenizer_file(dir);
    describe_pieces(in, fs::exists(pieces) ? pieces : found.value_or(pieces), root, out);
  }
  set_special(in, out);
  set_template(in, out);
  return out;
}

format::GgufValues no_gguf_tokenizer() { return {{kModelKey, std::string("none")}}; }

}  // namespace longhaul::checkpoint
