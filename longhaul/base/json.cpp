#include "longhaul/base/json.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/odd_numbers.h"

namespace longhaul {
namespace {

/// Builds a JSON value from the parser's events. The library's own parser with a callback
/// looks through all earlier members of an object each time a member ends, which takes
/// time in the square of their number.
template <typename Value>
class Builder final : public nlohmann::json_sax<Value> {
 public:
  using Text = typename Value::string_t;

  Builder(const PlainJson& plain, std::string_view what, int max_depth)
      : next_odd_(plain.odd().begin()),
        odd_end_(plain.odd().end()),
        what_(what),
        max_depth_(max_depth) {}

  Value take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Value::number_integer_t value) override {
    return add_number(value);
  }
  bool number_unsigned(typename Value::number_unsigned_t value) override {
    return add_number(value);
  }
  bool number_float(typename Value::number_float_t value, const Text&) override {
    return add_number(value);
  }
  bool string(Text& value) override { return add(std::move(value)); }
  bool binary(typename Value::binary_t& value) override { return add(std::move(value)); }

  bool start_object(size_t) override { return open(Value::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Value::array()); }
  bool end_array() override { return close(); }

  bool key(Text& name) override {
    auto& members = open_.back().value->template get_ref<typename Value::object_t&>();
    bool is_new = false;
    if constexpr (std::is_same_v<Value, Json>) {
      const auto place = members.try_emplace(name);
      member_ = &place.first->second;
      is_new = place.second;
    } else {  // a list, whose own search looks through all of it
      is_new = open_.back().keys.insert(name).second;
      member_ = &members.emplace_back(name, nullptr).second;
    }
    if (is_new) return true;
    fail_input("json", "{}: the key \"{}\" stands twice in one object", what_, name);
  }

  bool parse_error(size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_input("json", "{}: not valid JSON at byte {}: {}", what_, byte, words_of(error));
  }

 private:
  /// An object or a list whose end was not seen yet.
  struct Open {
    Value* value;
    std::set<std::string> keys = {};  ///< keys of an object that is stored as a list
  };

  Value& place(Value&& value) {
    if (std::ssize(open_) > max_depth_) {
      fail_input("json", "{}: nested deeper than {} levels; refused", what_, max_depth_);
    }
    if (open_.empty()) return root_ = std::move(value);
    Value& parent = *open_.back().value;
    if (parent.is_object()) return *member_ = std::move(value);
    auto& items = parent.template get_ref<typename Value::array_t&>();
    return items.emplace_back(std::move(value));
  }

  bool add(Value&& value) {
    place(std::move(value));
    return true;
  }

  bool add_number(Value&& value) {
    const bool odd = next_odd_ != odd_end_ && next_odd_->number == number_;
    ++number_;
    if (!odd) return add(std::move(value));
    const std::string_view text = (next_odd_++)->text;
    return add(Value::binary({text.begin(), text.end()}));
  }

  /// Begins an object or a list. Its address stays valid while it is open: it is the last
  /// value of the object or list around it, to which nothing is added before it is
  /// closed.
  bool open(Value&& value) {
    open_.push_back({&place(std::move(value))});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Value root_;
  std::vector<Open> open_;
  Value* member_ = nullptr;  ///< where the value after a key goes
  size_t number_ = 0;        ///< numbers seen so far
  std::vector<OddNumber>::const_iterator next_odd_;
  std::vector<OddNumber>::const_iterator odd_end_;
  std::string_view what_;
  int max_depth_;
};

template <typename Value>
Value parse(std::string_view given, std::string_view what, int max_depth) {
  const PlainJson plain(given);
  Builder<Value> builder(plain, what, max_depth);
  Value::sax_parse(plain.text(), &builder);
  return builder.take();
}

/// Returns whether a value holds a number that no number type here can hold. Such numbers
/// are stored as binary values (see parse_json).
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

/// Writes a value as dump() does. A binary value is the text of an odd number (see
/// parse_json), which is written as it is.
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

// Removes the library's prefix from "[json.exception.type_error.302] type must be
// string".
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
