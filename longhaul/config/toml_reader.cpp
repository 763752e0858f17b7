// The only source file that includes toml++, whose header takes seconds to compile.
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <sstream>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/toml_mistakes.h"
#include "longhaul/config/value.h"
#include "longhaul/objects/address_problem.h"

namespace longhaul::config {
namespace {

/// Gives the place of a node: file, line and column, or a fixed text for --set.
class Places {
 public:
  /// `text` is what was parsed, and outlives the object.
  Places(std::string name, std::string_view text)
      : name_(std::move(name)), lines_(lines_of(text)) {}
  static Places fixed(std::string where, std::string_view text) {
    Places places(std::move(where), text);
    places.fixed_ = true;
    return places;
  }
  std::string of(const toml::source_region& region) const {
    return fixed_ ? name_ : at(region.begin);
  }
  std::string at(const toml::source_position& position) const {
    return fmt::format("{}:{}:{}", name_, position.line, position.column);
  }
  bool exponent(const toml::source_region& region) const {
    const size_t line = region.begin.line;
    return line > 0 && line <= lines_.size() &&
           is_exponent(lines_[line - 1], region.begin.column);
  }

 private:
  std::string name_;
  std::vector<std::string_view> lines_;
  bool fixed_ = false;
};

constexpr int kMaxDepth = 16;

template <class T>
std::string as_text(const T& node) {
  std::ostringstream out;
  out << node;
  return out.str();
}

Value convert(const toml::node& node, const Places& places, int depth);

/// Throws ConfigError for a text in which a secret stands, before any message about the
/// text repeats it.
void refuse_secret(std::string_view text, const std::string& where) {
  const std::string problem = objects::secret_problem(text);
  if (!problem.empty()) fail_config("config", "{}: {}", where, problem);
}

/// Converts a table in the order of the file, so that the first mistake of a file is
/// reported.
Table convert_table(const toml::table& table, const Places& places, int depth) {
  std::vector<std::pair<toml::source_position, Entry>> found;
  for (const auto& [key, node] : table) {
    refuse_secret(key.str(), places.of(key.source()));
    found.push_back({key.source().begin,
                     {std::string(key.str()), places.of(key.source()),
                      convert(node, places, depth + 1)}});
  }
  std::ranges::stable_sort(found, {}, [](const auto& item) {
    return std::pair(item.first.line, item.first.column);
  });
  Table out;
  for (auto& item : found) out.push_back(std::move(item.second));
  return out;
}

Value convert(const toml::node& node, const Places& places, int depth) {
  Value out;
  out.where = places.of(node.source());
  if (depth > kMaxDepth) {
    fail_config("config", "{}: nested deeper than {} levels", out.where, kMaxDepth);
  }
  if (const auto* boolean = node.as_boolean()) {
    out.data = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    out.data = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    out.data = number->get();
    out.exponent = places.exponent(node.source());
  } else if (const auto* text = node.as_string()) {
    refuse_secret(text->get(), out.where);
    out.data = text->get();
  } else if (const auto* array = node.as_array()) {
    Array items;
    for (const toml::node& item : *array)
      items.push_back(convert(item, places, depth + 1));
    out.data = std::move(items);
  } else if (const auto* table = node.as_table()) {
    out.data = convert_table(*table, places, depth);
  } else if (const auto* date = node.as_date()) {
    out.data = Value::Date{as_text(*date)};
  } else if (const auto* time = node.as_time()) {
    out.data = Value::Date{as_text(*time)};
  } else {
    out.data = Value::Date{as_text(*node.as_date_time())};
  }
  return out;
}

/// Returns whether a line is TOML by itself. The mistake is then not in the form of the
/// line.
bool is_toml_line(std::string_view text, size_t line) {
  const std::vector<std::string_view> lines = lines_of(text);
  if (line == 0 || line > lines.size()) return false;
  try {
    return !toml::parse(lines[line - 1]).empty();
  } catch (const toml::parse_error&) {
    return false;
  }
}

bool is_plain_word(std::string_view text) {
  return !text.empty() && text.find_first_of("[]{}\"'=,\n\r") == std::string_view::npos;
}

}  // namespace

Table parse_toml(std::string_view text, std::string_view name) {
  const Places places{std::string(name), text};
  if (const auto bad = find_invalid_utf8(text)) {
    const std::string other = what_bytes_are(text, name);
    fail_config("config", "{}: not UTF-8 text (byte {}){}", name, *bad, other);
  }
  try {
    return convert_table(toml::parse(text, name), places, 0);
  } catch (const toml::parse_error& error) {
    const toml::source_position place = error.source().begin;
    const std::vector<std::string_view> lines = lines_of(text);
    for (size_t line : {place.line - 1, place.line}) {
      if (line > 0 && line <= lines.size())
        refuse_secret(lines[line - 1], places.at(place));
    }
    if (const std::string other = what_file_is(text, name); !other.empty()) {
      fail_config("config", "{}: {}", places.at(place), other);
    }
    const std::string meant =
        is_toml_line(text, place.line) ? "" : what_line_is(text, place.line);
    fail_config("config", "{}: not valid TOML: {}", places.at(place),
                meant.empty() ? std::string(error.description()) : meant);
  }
}

Value parse_toml_value(std::string_view text, const std::string& where) {
  if (const auto bad = find_invalid_utf8(text)) {
    fail_config("config",
                "{}: not UTF-8 text (byte {} of the value); settings and the paths in "
                "them are UTF-8",
                where, *bad);
  }
  std::string reason;
  try {
    const std::string line = fmt::format("value = {}", text);
    const toml::table table = toml::parse(line);
    if (table.size() == 1) {
      return convert(*table.get("value"), Places::fixed(where, line), 0);
    }
    reason = "more than one value";
  } catch (const toml::parse_error& error) {
    reason = error.description();
  }
  if (is_plain_word(text)) return Value{std::string(text), where};
  const std::string meant = what_value_is(text);
  fail_config("config", "{}: not a TOML value: {}", where,
              meant.empty() ? reason : meant);
}

}  // namespace longhaul::config
