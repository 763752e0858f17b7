#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/config/load.h"
#include "longhaul/config/value.h"

namespace longhaul::config {

/// The only description of one key of a section. Parsing, defaults, printing, hashing,
/// comparing, checking and the reference all use lists of fields.
struct Field {
  std::string key;
  std::string type;     ///< "integer", "string", "\"a\" | \"b\"" ...
  std::string meaning;  ///< one line for a person
  ResumeClass resume = ResumeClass::Free;
  bool required = false;
  std::string absent;  ///< what an optional key means if it is not given
  /// The values that this version implements, as TOML text; empty if it implements all.
  std::vector<std::string> built;
  bool takes_objects = false;  ///< a path that may be the address of objects
  std::string rule;            ///< the range in words, for messages and the reference
  std::function<bool(double)> in_range;

  /// Stores a value. Throws ConfigError with the value's place if the type is wrong.
  /// `name` is the whole key for messages ("optimizer.lr").
  std::function<void(const Value&, const std::string& name)> set;
  /// Returns the value as it would be written, or nothing if it is not given.
  std::function<std::optional<Value>()> get;

  // Each function refines the field and returns it, so that calls can be chained after
  // make_field.
  Field& must_be_given();
  Field& when_absent(std::string text);
  Field& at_least(double low);
  Field& above(double low);
  Field& within(double low, double high);
  /// Sets the range [low, high).
  Field& below(double low, double high);
  /// Makes `get` return nothing, so that the setting is not written, if `hidden` returns
  /// true.
  Field& written_unless(std::function<bool()> hidden);
  /// Lets a path be the address of objects, "s3://BUCKET/KEY", which a path refuses
  /// without this.
  Field& may_be_address();
  /// Refuses other texts than these.
  Field& one_of(std::vector<std::string> texts);
  /// Refuses all values but these, with a message that they are not available yet.
  Field& only_built(std::vector<std::string> values);
};

using Fields = std::vector<Field>;

/// Throws ConfigError "[config] where: message". With more arguments the message is
/// formatted as by fmt::format.
[[noreturn]] void fail_at(const std::string& where, const std::string& message);
template <class First, class... Rest>
[[noreturn]] void fail_at(const std::string& where,
                          fmt::format_string<First, Rest...> message, First&& first,
                          Rest&&... rest) {
  fail_at(where,
          fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}

/// Stores the entries of a table into fields. Throws ConfigError for a wrong value, and
/// for an unknown key with the nearest name. `prefix` is "optimizer" or "data.train[0]".
/// `other_names` are whole keys of other places; one that ends in the unknown key is
/// offered.
void set_fields(const Fields& fields, const Table& table, const std::string& prefix,
                const std::vector<std::string>& other_names = {});

/// Returns the given fields as a table, in order.
Table get_fields(const Fields& fields);

}  // namespace longhaul::config
