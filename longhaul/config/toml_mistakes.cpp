#include "longhaul/config/toml_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/config/count.h"

namespace longhaul::config {
namespace {

constexpr size_t kMostShown = 60;

/// Returns the text without a comment at its end. A # inside of quotes begins none.
std::string_view without_comment(std::string_view text) {
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == quote) quote = 0;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '#') {
      return trimmed(text.substr(0, i));
    }
  }
  return trimmed(text);
}

bool is_key(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_word_character(c) || c == '-' || c == '.';
  });
}

/// Returns the index of the colon of YAML's "key: value", or npos.
size_t yaml_colon(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_key(trimmed(line.substr(0, colon)))) {
    return std::string_view::npos;
  }
  const bool ends = colon + 1 == line.size() || line[colon + 1] == ' ';
  return ends ? colon : std::string_view::npos;
}

std::string shown(std::string_view text) {
  if (text.size() <= kMostShown) return std::string(text);
  size_t end = kMostShown - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

/// Words of Python, YAML and JSON, each with what TOML has for the word.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kWords{
    {{"True", "true"},
     {"TRUE", "true"},
     {"yes", "true"},
     {"Yes", "true"},
     {"on", "true"},
     {"False", "false"},
     {"FALSE", "false"},
     {"no", "false"},
     {"No", "false"},
     {"off", "false"},
     {"None", ""},
     {"null", ""},
     {"Null", ""},
     {"NULL", ""},
     {"nil", ""},
     {"~", ""}}};

/// Returns what is wrong with a number that another language takes.
std::string what_number_is(std::string_view value) {
  const bool sign = value[0] == '-' || value[0] == '+';
  std::string_view digits = value.substr(sign ? 1 : 0);
  if (digits.empty()) return "";
  if (digits[0] == '.' && digits.size() > 1 && is_digit(digits[1])) {
    return fmt::format("{}: TOML writes {}0{}", value, sign ? value.substr(0, 1) : "",
                       digits);
  }
  if (!is_digit(digits[0])) return "";
  const size_t point = digits.find('.');
  if (digits.find_first_not_of("0123456789._eE+-") == std::string_view::npos &&
      point != std::string_view::npos &&
      (point + 1 == digits.size() || !is_digit(digits[point + 1]))) {
    return fmt::format("{}: a number in TOML has digits behind its point: {}0{}", value,
                       value.substr(0, (sign ? 1 : 0) + point + 1),
                       digits.substr(point + 1));
  }
  const bool fit = std::ranges::all_of(digits, is_digit);
  if (fit && digits.size() > 1 && digits[0] == '0') {
    return fmt::format("{}: a number in TOML does not begin with 0", value);
  }
  const CountText count = read_count(value, false);
  if (!count.problem.empty()) return count.problem;
  if (count.count) {
    return fmt::format("{} stands in quotes (\"{}\"), or as {}", value, value,
                       *count.count);
  }
  return "";
}

/// Returns what is wrong with the way in which a value begins or ends.
std::string what_ends_are(std::string_view value) {
  if (value[0] == '=') return "TOML writes one = between key and value";
  const bool quoted = value.find_first_of("\"'") != std::string_view::npos;
  if (!quoted && value.find(" //") != std::string_view::npos) {
    return "a comment in TOML begins with #";
  }
  const std::string_view rest = trimmed(value.substr(0, value.size() - 1));
  const bool more = value.ends_with(',') || value.ends_with(';');
  if (more && !rest.empty() && rest.find_first_of(",;({[") == std::string_view::npos) {
    return fmt::format("{}: a line of TOML ends without {}: {}", shown(value),
                       value.back() == ',' ? "a comma" : "a semicolon", shown(rest));
  }
  if (value[0] == '$') {
    return fmt::format("{}: no variable is replaced in TOML; write the value itself",
                       shown(value));
  }
  return "";
}

/// Returns what is wrong with a number of another language that is not finite.
std::string what_is_not_finite(std::string_view value) {
  constexpr std::string_view kNotFinite[] = {"NaN", "NAN",      "Nan",     "Inf",
                                             "INF", "Infinity", "infinity"};
  const std::string_view name =
      value.substr(value.starts_with('-') || value.starts_with('+') ? 1 : 0);
  if (std::ranges::find(kNotFinite, name) == std::end(kNotFinite)) return "";
  return fmt::format("{}: a setting takes only finite numbers", value);
}

/// Returns what is not closed at the end of a line: a quote, or a table in braces.
std::string what_is_open(std::string_view value) {
  if (value.find("\"\"\"") != std::string_view::npos ||
      value.find("'''") != std::string_view::npos) {
    return "";
  }
  char quote = 0;
  int braces = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (quote != 0) {
      if (value[i] == '\\' && quote == '"') {
        ++i;
      } else if (value[i] == quote) {
        quote = 0;
      }
    } else if (value[i] == '"' || value[i] == '\'') {
      quote = value[i];
    } else if (value[i] == '{' || value[i] == '}') {
      braces += value[i] == '{' ? 1 : -1;
    }
  }
  if (quote != 0) return fmt::format("{}: a quote is not closed", shown(value));
  if (braces > 0) {
    return "a table in braces stands on one line, as { path = \"data/wiki\", weight = 1 "
           "}";
  }
  return "";
}

std::string what_list_is(std::string_view value) {
  if (value.empty()) return "";
  if (value[0] == '(') {
    return fmt::format("{}: a list stands in brackets: [{}]", shown(value),
                       shown(trimmed(value.substr(
                           1, value.size() - 1 - (value.ends_with(')') ? 1 : 0)))));
  }
  if (value[0] != '{' && value[0] != '[') return "";
  const bool dictionary = value.find("':") != std::string_view::npos ||
                          value.find("\":") != std::string_view::npos ||
                          value.find("' :") != std::string_view::npos;
  if (dictionary) {
    return fmt::format(
        "{} is a dictionary of Python or JSON; TOML writes {{ path = \"data/wiki\" }}",
        shown(value));
  }
  const bool python = value.find("True") != std::string_view::npos ||
                      value.find("False") != std::string_view::npos ||
                      value.find("None") != std::string_view::npos;
  if (python) {
    return fmt::format("{}: TOML writes true and false, and has no null", shown(value));
  }
  const bool quotes = value.find_first_of("\"'") != std::string_view::npos;
  const bool letters = std::ranges::any_of(
      value, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
  if (!quotes && letters) {
    return fmt::format(
        "{}: texts stand in quotes, which a shell takes away unless the whole word "
        "stands in quotes of its own: --set 'data.train=[{{path=\"data/wiki\"}}]'",
        shown(value));
  }
  return "";
}

}  // namespace

std::string what_value_is(std::string_view value) {
  value = trimmed(value);
  if (value.empty()) return "nothing stands behind the =";
  for (const auto& [theirs, ours] : kWords) {
    if (value != theirs) continue;
    if (ours.empty()) return fmt::format("TOML has no {}: leave the key out", theirs);
    return fmt::format("{} is no TOML; write {}", theirs, ours);
  }
  for (const std::string_view quote : {"\u201c", "\u201d", "\u2018", "\u2019"}) {
    if (value.find(quote) == std::string_view::npos) continue;
    return fmt::format("{}: quotes are \"straight\", not typographic", shown(value));
  }
  for (const auto& look : {what_ends_are, what_is_not_finite, what_number_is}) {
    if (std::string found = look(value); !found.empty()) return found;
  }
  if (std::string list = what_list_is(value); !list.empty()) return list;
  if (std::string open = what_is_open(value); !open.empty()) return open;
  const auto first = static_cast<unsigned char>(value[0]);
  const bool word = std::isalpha(first) != 0 || value[0] == '/' || value[0] == '.' ||
                    value[0] == '~' || value[0] == '$';
  if (word && value.find_first_of("\"'=[]{}") == std::string_view::npos) {
    return fmt::format("{}: a text stands in quotes: \"{}\"", shown(value), shown(value));
  }
  if (value.find(',') != std::string_view::npos &&
      value.find_first_of("[{\"'") == std::string_view::npos) {
    return fmt::format("{}: a list stands in brackets: [{}]", shown(value), shown(value));
  }
  return "";
}

std::string what_line_is(std::string_view text, size_t line) {
  const std::vector<std::string_view> lines = lines_of(text);
  if (line == 0 || line > lines.size()) return "";
  const std::string_view found = trimmed(lines[line - 1]);
  if (found.starts_with("//") || found.starts_with(";") || found.starts_with("/*")) {
    return "a comment in TOML begins with #";
  }
  const std::string_view said = without_comment(found);
  const size_t equals = said.find('=');
  const size_t colon = yaml_colon(said);
  if (colon < equals) {
    const std::string_view key = trimmed(said.substr(0, colon));
    const std::string_view value = trimmed(said.substr(colon + 1));
    if (value.empty()) {
      return fmt::format("'{}' is YAML; TOML writes a section as [{}]", shown(said), key);
    }
    return fmt::format("'{}' is YAML; TOML writes {} = {}", shown(said), key,
                       shown(value));
  }
  if (said.starts_with("- ")) {
    return fmt::format("'{}' is an item of a list in YAML; TOML writes [a, b]",
                       shown(said));
  }
  const bool table = said.starts_with("[") || said.starts_with("{");
  if (table || equals == std::string_view::npos) {
    return table && equals == std::string_view::npos ? "" : what_list_is(said);
  }
  return is_key(trimmed(said.substr(0, equals))) ? what_value_is(said.substr(equals + 1))
                                                 : "";
}

std::string what_bytes_are(std::string_view text, std::string_view name) {
  for (const std::string_view end : {".safetensors", ".pt", ".pth", ".bin", ".ckpt"}) {
    if (name.ends_with(end))
      return "; its name is that of a file of weights; run files are TOML";
  }
  constexpr std::pair<std::string_view, std::string_view> kBeginnings[] = {
      {"\x1f\x8b", "it is compressed by gzip: unpack it first"},
      {"\x28\xb5\x2f\xfd", "it is compressed by zstd: unpack it first"},
      {"PK\x03\x04", "it is a ZIP archive; run files are TOML"},
      {"\xff\xfe", "it is UTF-16: save it as UTF-8"},
      {"\xfe\xff", "it is UTF-16: save it as UTF-8"}};
  for (const auto& [bytes, meaning] : kBeginnings) {
    if (text.starts_with(bytes)) return fmt::format("; {}", meaning);
  }
  return "";
}

std::string what_file_is(std::string_view text, std::string_view name) {
  constexpr std::string_view kImport =
      "`longhaul import --flags FILE` makes one of a nanotron or axolotl YAML";
  std::string_view first;
  for (const std::string_view line : lines_of(text)) {
    const std::string_view found = trimmed(line);
    if (found.empty() || found[0] == '#') continue;
    first = found;
    break;
  }
  const bool yaml = name.ends_with(".yaml") || name.ends_with(".yml");
  if (yaml || first == "---" || yaml_colon(without_comment(first)) != std::string::npos) {
    return fmt::format("this is YAML; run files are TOML: {}", kImport);
  }
  if (name.ends_with(".json") || first.starts_with("{")) {
    return "this is JSON; run files are TOML (`longhaul recipe list` shows some), and "
           "[model] config names a model's config.json";
  }
  const bool script = name.ends_with(".sh") || name.ends_with(".sbatch") ||
                      name.ends_with(".slurm") || name.ends_with(".py");
  if (script || text.starts_with("#!")) {
    return "this is a script; run files are TOML: `longhaul import --flags FILE` makes "
           "one of a script that starts another system's training";
  }
  return "";
}

bool is_exponent(std::string_view line, size_t column) {
  constexpr size_t kMostColumns = 1000;  // a long line of numbers is walked only so far
  if (column > kMostColumns) return false;
  size_t at = 0;
  for (; column > 1 && at < line.size(); --column) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) {
      ++at;
    }
  }
  const std::string_view rest = line.substr(std::min(at, line.size()));
  const std::string_view number =
      rest.substr(0, std::min(rest.find_first_not_of("+-0123456789_.eE"), rest.size()));
  return number.find_first_of("eE") != std::string_view::npos;
}

}  // namespace longhaul::config
