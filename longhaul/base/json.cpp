#include "longhaul/base/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

template <typename Value>
Value parse(std::string_view text, std::string_view what, int max_depth) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, Value& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > max_depth) {
      throw InputError("json", fmt::format("{}: nested deeper than {} levels; refused",
                                           what, max_depth));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key &&
        !keys.back().insert(parsed.template get<std::string>()).second) {
      throw InputError("json",
                       fmt::format("{}: the key \"{}\" stands twice in one object", what,
                                   parsed.template get<std::string>()));
    }
    return true;
  };
  try {
    return Value::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError("json", fmt::format("{}: not valid JSON at byte {}: {}", what,
                                         error.byte, words_of(error)));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    throw InputError("json",
                     fmt::format("{}: not valid JSON: {}", what, words_of(error)));
  }
}

}  // namespace

// "[json.exception.type_error.302] type must be string, but is number".
std::string words_of(const Json::exception& problem) {
  const std::string_view words = problem.what();
  const size_t end = words.find("] ");
  const bool named = words.starts_with("[json.exception.") && end != words.npos;
  return std::string(named ? words.substr(end + 2) : words);
}

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  return parse<Json>(text, what, max_depth);
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view what,
                               int max_depth) {
  return parse<OrderedJson>(text, what, max_depth);
}

Json read_json(const fs::path& path, uint64_t limit) {
  return parse_json(read_text(path, limit), path.string());
}

}  // namespace longhaul
