#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"

namespace longhaul::tokenizer {

/// The ids of tokens must be below this number.
inline constexpr uint32_t kMaxTokens = uint32_t{1} << 24;

/// A value of a tokenizer.json with its place in the file, for messages. The document
/// must outlive the node.
class JsonNode {
 public:
  JsonNode(const Json& json, std::string_view file, std::string path)
      : json_(&json), file_(file), path_(std::move(path)) {}

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("tokenizer", "{}: {}: {}", file_, path_,
               fmt::format(problem, std::forward<Args>(args)...));
  }
  const Json& json() const { return *json_; }
  bool is_null() const { return json_->is_null(); }

  /// Returns the member, or a null node.
  JsonNode member(const char* key) const {
    static const Json null;
    if (!json_->is_object()) fail("expected an object");
    const auto found = json_->find(key);
    return {found == json_->end() ? null : *found, file_,
            path_.empty() ? key : path_ + "." + key};
  }
  std::vector<JsonNode> elements() const {
    if (!json_->is_array()) fail("expected a list");
    std::vector<JsonNode> nodes;
    nodes.reserve(json_->size());
    for (const Json& element : *json_) {
      nodes.emplace_back(element, file_, fmt::format("{}[{}]", path_, nodes.size()));
    }
    return nodes;
  }
  const std::string& text() const {
    if (!json_->is_string()) fail("expected a string");
    return json_->get_ref<const std::string&>();
  }
  bool flag(const char* key, bool when_absent) const {
    const JsonNode node = member(key);
    if (node.is_null()) return when_absent;
    if (!node.json().is_boolean()) node.fail("expected true or false");
    return node.json().get<bool>();
  }
  uint64_t number(const char* key, uint64_t when_absent) const {
    const JsonNode node = member(key);
    if (node.is_null()) return when_absent;
    if (!node.json().is_number_unsigned()) node.fail("expected a whole number");
    return node.json().get<uint64_t>();
  }
  uint32_t id() const {
    if (!json_->is_number_unsigned()) fail("expected a token id");
    const auto value = json_->get<uint64_t>();
    if (value >= kMaxTokens) {
      fail("the token id {} is not below the limit of {}", value, kMaxTokens);
    }
    return static_cast<uint32_t>(value);
  }
  std::string type() const { return member("type").text(); }

 private:
  const Json* json_;
  std::string_view file_;
  std::string path_;
};

}  // namespace longhaul::tokenizer
