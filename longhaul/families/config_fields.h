#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"

namespace longhaul::families {

/// Typed access to the fields of config.json, or of an object inside of config.json.
/// Every error is an InputError that names the file, the field, what was expected and
/// what was found.
class ConfigFields {
 public:
  /// `prefix` stands before field names in messages: "" or "rope_scaling.". Both
  /// references must outlive this object.
  ConfigFields(const OrderedJson& object, const std::string& file,
               std::string prefix = "");

  /// Returns the field, or nullptr when the field is absent or null. The typed readers
  /// below return nothing in that case.
  const OrderedJson* find(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  int64_t required_integer(std::string_view key, int64_t low, int64_t high) const;
  double required_number(std::string_view key) const;
  /// Returns the number that a norm adds to a variance, between 0 and 1. Without `absent`
  /// the field is required.
  double eps(std::string_view key, std::optional<double> absent = {}) const;
  /// Returns a probability of dropout, at least 0 and below 1.
  double dropout(std::string_view key, double absent) const;
  /// Returns the field initializer_range, the standard deviation of initial weights, or
  /// 0.02 if the field is absent.
  double initializer_range() const;
  /// Returns the list of the layers' kinds, or null if the field is absent or null.
  /// Throws InputError unless the list has as many names as there are layers.
  const OrderedJson* layer_types(size_t layers) const;
  /// Returns the token id, or the list of token ids; empty when the field is absent.
  std::vector<int64_t> token_ids(std::string_view key) const;

  /// Returns the name of the field with its prefix, such as "rope_scaling.factor".
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  /// Returns a part of a message: "= 3", or the words "is absent and stands for 3" if the
  /// file lacks the field.
  std::string valued(std::string_view key, int64_t value) const;
  /// Throws InputError "FILE: FIELD problem"; the problem is formatted as by fmt::format.
  template <class... Args>
  [[noreturn]] void fail(std::string_view key, fmt::format_string<Args...> problem,
                         Args&&... args) const {
    fail_input("model", "{}: {}{} {}", file_, prefix_, key,
               fmt::format(problem, std::forward<Args>(args)...));
  }
  /// Throws InputError "FILE: FIELD = true PROBLEM" for the first of the fields that is
  /// true.
  void refuse_true(std::initializer_list<std::string_view> keys,
                   std::string_view problem) const;
  /// Throws InputError for a feature that the program lacks and that a file switches on.
  [[noreturn]] void refuse(std::string_view key, const OrderedJson& value) const;
  const OrderedJson& object() const { return object_; }
  const std::string& file() const { return file_; }

 private:
  const OrderedJson& object_;
  const std::string& file_;
  std::string prefix_;
};

/// Returns whether a value switches a feature off: null, false, 0, "" or an empty list.
bool is_off(const OrderedJson& json);

}  // namespace longhaul::families
