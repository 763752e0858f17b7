#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace longhaul::config {

struct Value;
using Array = std::vector<Value>;

/// A key of a table with the place it was written at.
struct Entry;
using Table = std::vector<Entry>;

/// A TOML value with the place it came from ("run.toml:3:9", "--set a.b=c"), so that
/// every message can name it. Dates are kept as text and refused by every field.
struct Value {
  struct Date {
    std::string text;
  };
  std::variant<bool, int64_t, double, std::string, Date, Array, Table> data;
  std::string where;

  /// "an integer", "a string" ...: for messages.
  std::string_view kind() const;
};

struct Entry {
  std::string key;
  std::string where;
  Value value;
};

/// The entry of that key, or nullptr.
Entry* find(Table& table, std::string_view key);
const Entry* find(const Table& table, std::string_view key);

/// A value as TOML on one line; numbers read back to the same bits.
std::string print_value(const Value& value);
/// A key, quoted where TOML needs it.
std::string print_key(std::string_view key);
/// A value as JSON text (tables become objects).
std::string print_json(const Value& value);

/// Reads a whole file's text. ConfigError: "name:line:column: what TOML says is wrong".
Table parse_toml(std::string_view text, std::string_view name);

/// Reads the right-hand side of `--set section.key=value`; a word that is no TOML value
/// is a string. `where` is kept as the value's place.
Value parse_toml_value(std::string_view text, const std::string& where);

}  // namespace longhaul::config
