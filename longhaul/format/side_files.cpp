#include "longhaul/format/side_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/odd_numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::format {
namespace {

/// The folder in which transformers looks for further chat templates.
constexpr const char* kTemplateFolder = "additional_chat_templates";

enum class SideKind : uint8_t {
  Vocabulary,  ///< a tokenizer's own
  Tokenizer,   ///< what goes with it
  Other
};

struct SidePattern {
  const char* pattern;
  SideKind kind;
};

// Names of transformers' tokenizers, processors and configs, in lower case; the names of
// licences differ in case.
constexpr SidePattern kSidePatterns[] = {
    {"config.json", SideKind::Other},
    {"generation_config.json", SideKind::Other},
    {"tokenizer.json", SideKind::Vocabulary},
    {"tokenizer.model*", SideKind::Vocabulary},
    {"*.tokenizer", SideKind::Vocabulary},
    {"spiece.model", SideKind::Vocabulary},
    {"spm*.model", SideKind::Vocabulary},
    {"source.spm", SideKind::Vocabulary},
    {"target.spm", SideKind::Vocabulary},
    {"sentencepiece*.model", SideKind::Vocabulary},
    {"tekken*.json", SideKind::Vocabulary},
    {"*.tiktoken", SideKind::Vocabulary},
    {"tiktoken.model", SideKind::Vocabulary},
    {"vocab*.json", SideKind::Vocabulary},
    {"*vocab.json", SideKind::Vocabulary},
    {"vocab.txt", SideKind::Vocabulary},
    {"vocab.bpe", SideKind::Vocabulary},
    {"encoder.json", SideKind::Vocabulary},
    {"merges.txt", SideKind::Tokenizer},
    {"bpe.codes", SideKind::Tokenizer},
    {"dict*.txt", SideKind::Tokenizer},
    {"tokenizer*.json", SideKind::Tokenizer},
    {"added_tokens.json", SideKind::Tokenizer},
    {"special_tokens_map.json", SideKind::Tokenizer},
    {"normalizer.json", SideKind::Tokenizer},
    {"emoji.json", SideKind::Tokenizer},
    {"byte_maps.json", SideKind::Tokenizer},
    {"word_shape.json", SideKind::Tokenizer},
    {"word_pronunciation.json", SideKind::Tokenizer},
    {"chat_template*", SideKind::Tokenizer},
    {"additional_chat_templates/*.jinja", SideKind::Tokenizer},
    {"*processor_config.json", SideKind::Other},
    {"processor*.json", SideKind::Other},
    {"audio_tokenizer_config.json", SideKind::Other},
    {"modelcard.json", SideKind::Other},
    {"*license*", SideKind::Other},
    {"*licence*", SideKind::Other},
    {"*copying*", SideKind::Other},
    {"*notice*", SideKind::Other},
    {"*use_policy*", SideKind::Other},
    {"*terms_of_use*", SideKind::Other},
    {"readme*", SideKind::Other}};

std::optional<SideKind> kind_of(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  // A pattern's * also matches '/', which only names in the template folder have.
  if (lower.ends_with(".py")) return std::nullopt;
  const bool in_folder = lower.find('/') != std::string::npos;
  for (const SidePattern& one : kSidePatterns) {
    const bool of_folder =
        std::string_view(one.pattern).find('/') != std::string_view::npos;
    if (in_folder == of_folder && glob_match(one.pattern, lower)) return one.kind;
  }
  return std::nullopt;
}

/// Returns the side files by their names, also damaged files.
std::vector<std::string> named_side_files(const fs::path& dir) {
  std::vector<std::string> all = listed_names(dir);
  if (is_seen_directory(dir / kTemplateFolder)) {
    const std::string prefix = std::string(kTemplateFolder) + "/";
    const std::vector<std::string> more = listed_names(dir / kTemplateFolder, prefix);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::erase_if(all, [](const std::string& name) { return !kind_of(name); });
  std::ranges::sort(all);
  return all;
}

/// Checks the grammar of JSON and keeps nothing, since a tokenizer has a million values.
class JsonGrammar : public nlohmann::json_sax<Json> {
 public:
  std::string problem;
  bool has_model = false;  ///< an object with a member "model"

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool key(string_t& name) override {
    has_model = has_model || (depth_ == 1 && name == "model");
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    problem = fmt::format("not valid JSON at byte {}: {}", position, words_of(error));
    return false;
  }

 private:
  int64_t depth_ = 0;
};

/// Returns what is wrong with the file, or an empty text.
std::string problem_of(const fs::path& path, const std::string& name) {
  if (const std::string link = dangling_link(path); !link.empty()) return link;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return error.message();
  // A folder may have the name of a licence.
  if (fs::is_directory(status)) {
    return name.ends_with(".json") || name.ends_with(".model") ? "a folder, not a file"
                                                               : "";
  }
  if (!fs::is_regular_file(status)) return "not a regular file";
  try {
    if (!name.ends_with(".json")) {
      File::open_read(path);
      return {};
    }
    const MappedFile file(path);
    JsonGrammar grammar;
    // A number that JSON cannot express does no harm if nobody reads it.
    Json::sax_parse(PlainJson(file.text()).text(), &grammar);
    if (!grammar.problem.empty()) return grammar.problem;
    if (name == "tokenizer.json" && !grammar.has_model) {
      return "holds no tokenizer: an object with a member \"model\" is expected";
    }
    return {};
  } catch (const InputError& problem) {
    return problem.message();
  }
}

}  // namespace

bool is_tokenizer_side_file(std::string_view name) {
  return kind_of(name).value_or(SideKind::Other) != SideKind::Other;
}

bool has_tokenizer(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) {
    return kind_of(name) == SideKind::Vocabulary;
  });
}

std::vector<std::string> listed_names(const fs::path& dir, const std::string& prefix) {
  std::error_code error;
  std::vector<std::string> names;
  // A file without a directory in its path lies in ".".
  for (fs::directory_iterator it(dir.empty() ? fs::path(".") : dir, error), end;
       !error && it != end; it.increment(error)) {
    names.push_back(prefix + it->path().filename().string());
  }
  if (error) {
    fail_input("weights", "{}: cannot be listed: {}", dir.string(), error.message());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> hf_side_files(const fs::path& dir) {
  std::vector<std::string> names = named_side_files(dir);
  std::erase_if(names,
                [&](const std::string& name) { return !is_seen_file(dir / name); });
  return names;
}

std::vector<std::string> side_file_problems(const fs::path& dir) {
  std::vector<std::string> problems;
  for (const std::string& name : named_side_files(dir)) {
    const std::string problem = problem_of(dir / name, name);
    if (!problem.empty()) problems.push_back((dir / name).string() + ": " + problem);
  }
  return problems;
}

void check_side_files(const fs::path& dir) {
  const std::vector<std::string> problems = side_file_problems(dir);
  if (problems.empty()) return;
  fail_input("weights",
             "{}; copy what is damaged from where the model came from, or remove it",
             fmt::join(problems, "; "));
}

std::vector<std::string> files_left_behind(const fs::path& dir,
                                           const std::vector<std::string>& used) {
  std::vector<std::string> left;
  for (const std::string& name : listed_names(dir)) {
    const bool folder = fs::is_directory(dir / name);
    if (folder && name == kTemplateFolder) {
      for (const std::string& file : listed_names(dir / name, name + "/")) {
        if (!kind_of(file)) left.push_back(file);
      }
    } else if (folder || !kind_of(name)) {
      const std::string shown = name + (folder ? "/" : "");
      const bool known = std::ranges::any_of(used, [&](const std::string& file) {
        return folder ? file.starts_with(shown) : file == name;
      });
      if (!known) left.push_back(shown);
    }
  }
  return left;
}

}  // namespace longhaul::format
