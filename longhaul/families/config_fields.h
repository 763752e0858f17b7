#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"

namespace longhaul::families {

/// Typed access to the fields of config.json, or of an object in it. Every error is an
/// InputError that names the file, the field, what was expected and what was found.
class ConfigFields {
 public:
  /// `prefix` is "" or "rope_scaling."; both references must outlive this object.
  ConfigFields(const OrderedJson& object, const std::string& file,
               std::string prefix = "");

  /// The field, or nullptr when it is absent or null.
  const OrderedJson* find(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  int64_t required_integer(std::string_view key, int64_t low, int64_t high) const;
  double required_number(std::string_view key) const;
  /// What a norm adds to a variance: between 0 and 1. Without `absent` it is required.
  double eps(std::string_view key, std::optional<double> absent = {}) const;
  /// A probability of dropout, at least 0 and below 1. A null, which transformers
  /// refuses, is an error.
  double dropout(std::string_view key, double absent) const;
  /// Standard deviation of first weights, 0.02 where the file has none.
  double initializer_range() const;
  /// One token id or a list of them; empty when absent.
  std::vector<int64_t> token_ids(std::string_view key) const;

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;
  /// For a feature that is not built, where a file has it on.
  [[noreturn]] void refuse(std::string_view key, const OrderedJson& value) const;
  const OrderedJson& object() const { return object_; }
  const std::string& file() const { return file_; }

 private:
  const OrderedJson& object_;
  const std::string& file_;
  std::string prefix_;
};

/// null, false, 0, "" and empty lists switch a feature off.
bool is_off(const OrderedJson& json);

}  // namespace longhaul::families
