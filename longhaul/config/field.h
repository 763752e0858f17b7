#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/config/load.h"
#include "longhaul/config/value.h"

namespace longhaul::config {

/// One key of a section: the only description of it. Parsing, defaults, printing,
/// hashing, comparing, checking and the reference are all driven by lists of these.
struct Field {
  std::string key;
  std::string type;     ///< "integer", "string", "\"a\" | \"b\"" ...
  std::string meaning;  ///< one line for a person
  ResumeClass resume = ResumeClass::Free;
  bool required = false;
  std::string absent;  ///< what happens when an optional key is not given
  /// Values that work today, as TOML text; empty: all of them.
  std::vector<std::string> built;
  std::string rule;  ///< the range in words, for messages and the reference
  std::function<bool(double)> in_range;

  /// Stores a value; ConfigError with its place when the type or range is wrong.
  /// `name` is the whole key for messages ("optimizer.lr").
  std::function<void(const Value&, const std::string& name)> set;
  /// The value as it would be written, or nothing when it is not given.
  std::function<std::optional<Value>()> get;

  // Refinements, chained after make_field.
  Field& must_be_given();
  Field& when_absent(std::string text);
  Field& at_least(double low);
  Field& above(double low);
  Field& within(double low, double high);
  /// [low, high)
  Field& below(double low, double high);
  /// Anything but these values is refused: not available yet.
  Field& only_built(std::vector<std::string> values);
};

using Fields = std::vector<Field>;

/// [config] where: message
[[noreturn]] void fail_at(const std::string& where, const std::string& message);

/// Stores the entries of a table into fields; unknown keys are refused with the nearest
/// name. `prefix` is "optimizer" or "data.train[0]". `other_names` are whole keys of
/// other places, offered when one of them ends in the unknown key.
void set_fields(const Fields& fields, const Table& table, const std::string& prefix,
                const std::vector<std::string>& other_names = {});

/// The given fields as a table, in order.
Table get_fields(const Fields& fields);

}  // namespace longhaul::config
