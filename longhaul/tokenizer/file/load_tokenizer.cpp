#include "longhaul/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/format/side_files.h"
#include "longhaul/tokenizer/file/auto_tokenizer.h"
#include "longhaul/tokenizer/file/byte_level_tokenizer.h"
#include "longhaul/tokenizer/file/json_node.h"
#include "longhaul/tokenizer/file/sentencepiece_file.h"
#include "longhaul/tokenizer/file/sentencepiece_tokenizer.h"
#include "longhaul/tokenizer/file/tokenizer_json.h"

namespace longhaul::tokenizer {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{1} << 28;

/// Returns a token named in a JSON file: a string, or an object with `content`.
std::optional<std::string> named_token(const Json& json, const char* key,
                                       const fs::path& file) {
  if (!json.is_object()) fail_input("tokenizer", "{}: expected an object", file.string());
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") &&
      (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  fail_input("tokenizer", "{}: {} is neither a string nor an object with content",
             file.string(), key);
}

/// Returns an id in generation_config.json or config.json: a number, or the first of a
/// list.
std::optional<TokenId> named_id(const Json& json, const char* key, const fs::path& file,
                                const Tokenizer& tokenizer) {
  if (!json.is_object() || !json.contains(key)) return std::nullopt;
  const Json* value = &json[key];
  if (value->is_array() && !value->empty()) value = &(*value)[0];
  if (value->is_null()) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<uint64_t>() >= kMaxTokens ||
      !tokenizer.id_to_token(value->get<TokenId>())) {
    fail_input("tokenizer", "{}: {} is {}, which is not the id of a token", file.string(),
               key, json_text(*value));
  }
  return value->get<TokenId>();
}

/// Returns the files that name special tokens; the first that names one takes precedence.
/// In transformers special_tokens_map.json overrides tokenizer_config.json unless the
/// latter has added_tokens_decoder.
std::array<const char*, 2> token_files(const fs::path& dir) {
  constexpr const char* kConfig = "tokenizer_config.json";
  constexpr const char* kMap = "special_tokens_map.json";
  if (!fs::exists(dir / kConfig) || !fs::exists(dir / kMap)) return {kConfig, kMap};
  const Json config = read_json(dir / kConfig);
  const bool first = config.is_object() && config.contains("added_tokens_decoder");
  return first ? std::array{kConfig, kMap} : std::array{kMap, kConfig};
}

std::optional<TokenId> find_end(const fs::path& dir, const char* token_key,
                                const char* id_key, const Tokenizer& tokenizer) {
  for (const char* name : token_files(dir)) {
    const fs::path file = dir / name;
    if (!fs::exists(file)) continue;
    const auto token = named_token(read_json(file), token_key, file);
    if (!token) continue;
    const auto id = tokenizer.token_to_id(*token);
    if (!id) {
      fail_input("tokenizer", "{}: {} is \"{}\", which tokenizer.json does not have",
                 file.string(), token_key, *token);
    }
    return id;
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = dir / name;
    if (!fs::exists(file)) continue;
    const auto id = named_id(read_json(file), id_key, file, tokenizer);
    if (id) return id;
  }
  return std::nullopt;
}

}  // namespace

TokenizerSurroundings read_surroundings(const fs::path& file, const Json& root,
                                        const Tokenizer& tokenizer) {
  const fs::path dir = file.parent_path();
  // A dangling link would look like an absent file.
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "generation_config.json"}) {
    const std::string link = dangling_link(dir / name);
    if (link.empty()) continue;
    fail_input("tokenizer", "{}: {}; copy the file itself there", (dir / name).string(),
               link);
  }
  TokenizerSurroundings around;
  around.files.push_back(file);
  for (const std::string& name : format::hf_side_files(dir)) {
    const bool goes_along =
        format::is_tokenizer_side_file(name) && name != file.filename();
    if (goes_along) around.files.push_back(dir / name);
  }
  around.bos = find_end(dir, "bos_token", "bos_token_id", tokenizer);
  around.eos = find_end(dir, "eos_token", "eos_token_id", tokenizer);
  around.warnings = auto_tokenizer_differences(file, root, tokenizer);
  return around;
}

std::string fingerprint_of(const TokenizerSpec& spec) {
  std::string text = "longhaul tokenizer 1\n";
  const auto number = [&](uint64_t value) { text += std::to_string(value) + ","; };
  const auto string = [&](const std::string& value) {
    number(value.size());
    text += value;
  };
  number(spec.model.vocab.size());
  for (const auto& token : spec.model.vocab) {
    number(token ? 1 : 0);
    if (token) string(*token);
  }
  number(spec.model.merges.size());
  for (const auto& merge : spec.model.merges) {
    number(merge.left);
    number(merge.right);
  }
  number(spec.model.unknown ? *spec.model.unknown + uint64_t{1} : 0);
  number(spec.model.fuse_unknown);
  number(spec.model.ignore_merges);
  number(spec.added.size());
  for (const AddedToken& token : spec.added) {
    number(token.id);
    string(token.content);
    for (const bool flag : {token.special, token.single_word, token.lstrip, token.rstrip,
                            token.normalized}) {
      number(flag);
    }
  }
  number(spec.nfc);
  number(spec.steps.size());
  for (const SplitStep& step : spec.steps) {
    number(step.add_prefix_space);
    string(std::string(split_name(step.pattern)));
  }
  for (const auto* ids : {&spec.affixes.prefix, &spec.affixes.suffix}) {
    number(ids->size());
    for (const uint32_t id : *ids) number(id);
  }
  return hash_hex(text);
}

namespace {

/// Sets the BOS and EOS pieces around a text, by tokenizer_config.json or by the class
/// that it names.
void read_affixes(const fs::path& dir, SentencePieceTokenizer& tokenizer) {
  const fs::path file = dir / "tokenizer_config.json";
  if (!fs::exists(file)) return;
  const Json json = read_json(file);
  const auto flag = [&](const char* key, bool when_absent) {
    if (!json.is_object() || !json.contains(key) || json[key].is_null()) {
      return when_absent;
    }
    if (json[key].is_boolean()) return json[key].get<bool>();
    fail_input("tokenizer", "{}: {} is {}, expected true or false", file.string(), key,
               json_text(json[key]));
  };
  const auto name = named_token(json, "tokenizer_class", file).value_or("");
  const bool llama = name.starts_with("LlamaTokenizer");
  const bool t5 = name.starts_with("T5Tokenizer");
  tokenizer.surround_with(flag("add_bos_token", llama), flag("add_eos_token", t5));
}

/// Refuses an added_tokens.json beside a SentencePiece `.model` if it adds tokens that
/// the model lacks, since the file is not read.
void refuse_more_tokens(const fs::path& dir, const Tokenizer& tokenizer) {
  const fs::path file = dir / "added_tokens.json";
  if (!fs::exists(file)) return;
  const Json json = read_json(file);
  for (auto token = json.begin(); json.is_object() && token != json.end(); ++token) {
    if (tokenizer.token_to_id(token.key())) continue;
    fail_input("tokenizer",
               "{} adds \"{}\", which is not supported beside a tokenizer.model; save "
               "the tokenizer as tokenizer.json with transformers and give that file",
               file.string(), token.key());
  }
}

constexpr const char* kMakeTokenizerJson =
    "longhaul reads a tokenizer.json: give the file of the model's Hugging Face "
    "directory, or make one with transformers, "
    "AutoTokenizer.from_pretrained(\"DIR\").save_pretrained(\"OUT\"), and give OUT";

/// Returns whether a line is tiktoken's: a token in base64, a space and a rank.
bool is_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  const std::string_view rank = line.substr(space + 1);
  const auto is_base64 = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '/' || c == '=';
  };
  const auto is_digit_or_return = [](unsigned char c) {
    return std::isdigit(c) != 0 || c == '\r';
  };
  return std::ranges::all_of(line.substr(0, space), is_base64) && !rank.empty() &&
         std::isdigit(static_cast<unsigned char>(rank.front())) != 0 &&
         std::ranges::all_of(rank, is_digit_or_return);
}

void refuse_tiktoken(const fs::path& file, std::string_view bytes) {
  if (!is_tiktoken(bytes)) return;
  fail_input("tokenizer",
             "{}: is a tiktoken file (lines of a token in base64 and its rank, as Meta "
             "publishes Llama 3's tokenizer.model), not a SentencePiece model; it holds "
             "neither the split pattern nor the special tokens; {}",
             file.string(), kMakeTokenizerJson);
}

/// Refuses JSON of a tokenizer in another form than tokenizer.json.
void refuse_other_json(const Json& root, const std::string& name) {
  if (root.contains("model")) return;
  const bool tekken = root.contains("vocab") && root.contains("config");
  const bool list = !root.empty() && std::ranges::all_of(root, &Json::is_number_unsigned);
  if (!tekken && !list) return;
  fail_input("tokenizer", "{}: is {}, not a tokenizer.json; {}", name,
             tekken ? "Mistral's own tekken form" : "a vocabulary alone (vocab.json)",
             kMakeTokenizerJson);
}

std::unique_ptr<Tokenizer> load_sentencepiece(const fs::path& file) {
  const std::string bytes = read_text(file, kMaxTokenizerBytes);
  refuse_tiktoken(file, bytes);
  auto tokenizer = SentencePieceTokenizer::parse(bytes, file.string());
  refuse_more_tokens(file.parent_path(), *tokenizer);
  read_affixes(file.parent_path(), *tokenizer);
  TokenizerSurroundings around = read_surroundings(file, {}, *tokenizer);
  if (!around.bos) around.bos = tokenizer->own_bos();
  if (!around.eos) around.eos = tokenizer->own_eos();
  tokenizer->set_surroundings(std::move(around));
  return tokenizer;
}

/// Names the files of a directory that hold tokenizers in other forms, and says what the
/// user can do. Returns an empty text if there are none.
std::string other_tokenizers(const fs::path& dir) {
  std::string names;
  for (const char* name : {"vocab.json", "merges.txt", "vocab.txt", "tekken.json"}) {
    if (fs::exists(dir / name)) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names.empty() ? names : fmt::format(" but {}; {}", names, kMakeTokenizerJson);
}

}  // namespace

std::vector<std::string> copy_tokenizer_files(const Tokenizer& tokenizer,
                                              const fs::path& dir) {
  fs::create_directories(dir);
  std::vector<std::string> names;
  if (tokenizer.files().empty()) return names;
  const fs::path from = tokenizer.files().front().parent_path();
  for (const fs::path& file : tokenizer.files()) {
    const fs::path name = file.lexically_relative(from.empty() ? "." : from);
    if (name.has_parent_path()) fs::create_directories(dir / name.parent_path());
    copy_file_durable(file, dir / name);
    if (name.has_parent_path()) sync_directory(dir / name.parent_path());
    names.push_back(name.string());
  }
  sync_directory(dir);
  return names;
}

std::optional<fs::path> find_tokenizer_file(const fs::path& dir) {
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
    // A dangling link counts too. The reader of the file reports the link.
    if (fs::exists(fs::symlink_status(dir / name))) return dir / name;
  }
  return std::nullopt;
}

std::string damaged_tokenizer(const fs::path& dir) {
  const auto file = find_tokenizer_file(dir);
  if (!file || file->extension() != ".model") return {};
  try {
    const std::string bytes = read_text(*file, kMaxTokenizerBytes);
    if (!is_tiktoken(bytes)) parse_sentencepiece(bytes, file->string());
  } catch (const DamagedModel& damage) {
    return damage.message();
  } catch (const InputError&) {
    // This error says that the kind or size of the file is not supported, not that the
    // file is damaged.
  }
  return {};
}

std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& path) {
  constexpr const char* kWanted =
      "give a tokenizer.json, a tokenizer.model or a directory that holds one";
  if (!fs::exists(path)) fail_input("tokenizer", "{}; {}", missing_path(path), kWanted);
  fs::path file = path;
  if (fs::is_directory(path)) {
    const auto found = find_tokenizer_file(path);
    if (!found) {
      fail_input("tokenizer", "{}: holds no tokenizer.json and no tokenizer.model{}; {}",
                 path.string(), other_tokenizers(path), kWanted);
    }
    file = *found;
  }
  if (file.extension() == ".model") return load_sentencepiece(file);
  if (file.extension() != ".json") {
    if (file.extension() == ".tiktoken")
      refuse_tiktoken(file, read_text(file, kMaxTokenizerBytes));
    fail_input("tokenizer", "{}: is neither a .json nor a .model file; {}", file.string(),
               kWanted);
  }
  std::unique_ptr<FileTokenizer> tokenizer;
  {
    const std::string name = file.string();
    const Json root = read_tokenizer_root(read_text(file, kMaxTokenizerBytes), name);
    refuse_other_json(root, name);
    tokenizer = tokenizer_of(root, name);
    tokenizer->set_surroundings(read_surroundings(file, root, *tokenizer));
  }
  // The parsed JSON took up to a million small blocks of memory, which are free now.
  // Giving them back to the system saves memory, and some 25 ms of the first text.
  ::malloc_trim(0);
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text,
                                       bool add_special_tokens) const {
  std::vector<TokenId> ids;
  encode(text, add_special_tokens, ids);
  return ids;
}

std::vector<int64_t> prompt_ids(const std::string& area, const Tokenizer& tokenizer,
                                std::string_view text, int64_t vocab_size,
                                bool add_special_tokens) {
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = tokenizer.special_prefix();
  tokenizer.encode(text, false, ids);
  for (const TokenId id : ids) {
    if (id < vocab_size) continue;
    fail_input(area,
               "token id {} is not below {}, the size of the model's vocabulary; give "
               "the model's own tokenizer",
               id, vocab_size);
  }
  return {ids.begin(), ids.end()};
}

}  // namespace longhaul::tokenizer
