#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/config/model_config.h"

namespace longhaul::config {

/// Typed access to the fields of config.json, or of an object in it. Every error is an
/// InputError that names the file, the field, what was expected and what was found.
class JsonFields {
 public:
  /// `prefix` is "" or "rope_scaling."; both references must outlive this object.
  JsonFields(const OrderedJson& object, const std::string& file, std::string prefix = "");

  /// The field, or nullptr when it is absent or null.
  const OrderedJson* find(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  int64_t required_integer(std::string_view key, int64_t low, int64_t high) const;
  double required_number(std::string_view key) const;
  /// One token id or a list of them; empty when absent.
  std::vector<int64_t> token_ids(std::string_view key) const;

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;
  const OrderedJson& object() const { return object_; }
  const std::string& file() const { return file_; }

 private:
  const OrderedJson& object_;
  const std::string& file_;
  std::string prefix_;
};

/// Rotary embedding from rope_theta, rope_scaling and rope_parameters. InputError for a
/// kind that is not built, a missing parameter, or two places that disagree.
RopeConfig read_rope(const JsonFields& fields);
/// "default", "llama3", "linear": as config.json has it.
std::string rope_type_name(RopeConfig::Kind kind);

}  // namespace longhaul::config
