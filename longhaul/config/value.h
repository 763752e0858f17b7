#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longhaul::config {

struct Value;
using Array = std::vector<Value>;

/// A key of a table with its value and its place.
struct Entry;
using Table = std::vector<Entry>;

/// A TOML value with its place ("run.toml:3:9", "--set a.b=c"), which messages name.
/// Dates are kept as text.
struct Value {
  struct Date {
    std::string text;
  };
  std::variant<bool, int64_t, double, std::string, Date, Array, Table> data;
  std::string where;
  /// True for a number that is written with an exponent ("1e6"), which may be meant as a
  /// count.
  bool exponent = false;

  /// Returns the kind for messages: "an integer", "a string" ...
  std::string_view kind() const;
};

struct Entry {
  std::string key;
  std::string where;
  Value value;
};

/// Returns the entry of a key, or nullptr.
Entry* find(Table& table, std::string_view key);
const Entry* find(const Table& table, std::string_view key);

/// Returns a value as TOML on one line. Numbers read back to the same bits.
std::string print_value(const Value& value);
/// Returns a key, quoted if TOML needs that.
std::string print_key(std::string_view key);
/// Returns a value as JSON text; tables become objects.
std::string print_json(const Value& value);

/// Parses a whole file's text. Throws ConfigError "name:line:column: what is wrong".
Table parse_toml(std::string_view text, std::string_view name);

/// Parses the right-hand side of `--set section.key=value`; a word that is no TOML value
/// is a string. `where` becomes the value's place.
Value parse_toml_value(std::string_view text, const std::string& where);

}  // namespace longhaul::config
