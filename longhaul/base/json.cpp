#include "longhaul/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/odd_numbers.h"

namespace longhaul {
namespace {

template <typename Value>
Value parse(std::string_view given, std::string_view what, int max_depth) {
  const PlainJson plain(given);
  size_t number = 0;
  auto next_odd = plain.odd().begin();
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, Value& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > max_depth) {
      throw InputError("json", fmt::format("{}: nested deeper than {} levels; refused",
                                           what, max_depth));
    }
    if (event == Event::value && parsed.is_number()) {
      if (next_odd != plain.odd().end() && next_odd->number == number) {
        parsed = Value::binary({next_odd->text.begin(), next_odd->text.end()});
        ++next_odd;
      }
      ++number;
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
    return Value::parse(plain.text(), watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError("json", fmt::format("{}: not valid JSON at byte {}: {}", what,
                                         error.byte, words_of(error)));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    throw InputError("json",
                     fmt::format("{}: not valid JSON: {}", what, words_of(error)));
  }
}

/// Returns whether one of parse's odd numbers is in a value.
template <typename Value>
bool has_odd_numbers(const Value& value) {
  if (!value.is_structured()) return value.is_binary();
  return std::any_of(value.begin(), value.end(),
                     [](const Value& item) { return has_odd_numbers(item); });
}

template <typename Value>
std::string dumped(const Value& value, int indent = -1) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

/// Writes a value as dump() does; of a binary value it writes the number's own text.
template <typename Value>
void write(const Value& value, int indent, int level, std::string& out) {
  if (value.is_binary()) {
    out.append(value.get_binary().begin(), value.get_binary().end());
    return;
  }
  if (!value.is_structured() || value.empty()) {
    out += dumped(value);
    return;
  }
  const auto line = [&](int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
  };
  const bool object = value.is_object();
  out += object ? '{' : '[';
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (item != value.begin()) out += ',';
    line(level + 1);
    if (object) out += dumped(Value(item.key())) + (indent < 0 ? ":" : ": ");
    write(*item, indent, level + 1, out);
  }
  line(level);
  out += object ? '}' : ']';
}

template <typename Value>
std::string text_of(const Value& value, int indent) {
  if (!has_odd_numbers(value)) return dumped(value, indent);
  std::string text;
  write(value, indent, 0, text);
  return text;
}

}  // namespace

// "[json.exception.type_error.302] type must be string, but is number".
std::string words_of(const Json::exception& problem) {
  const std::string_view words = problem.what();
  const size_t end = words.find("] ");
  const bool named = words.starts_with("[json.exception.") && end != words.npos;
  return std::string(named ? words.substr(end + 2) : words);
}

std::string json_text(const Json& value, int indent) { return text_of(value, indent); }

std::string json_text(const OrderedJson& value, int indent) {
  return text_of(value, indent);
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
