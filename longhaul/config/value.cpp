#include "longhaul/config/value.h"

#include <fmt/format.h>

#include <cmath>

namespace longhaul::config {
namespace {

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overload(Ts...) -> Overload<Ts...>;

/// Returns a basic string. TOML and JSON share these escapes; only \/ is refused by TOML.
std::string quote(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t";
  constexpr std::string_view kLetters = "\"\\nrt";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const size_t at = kEscaped.find(c); at != std::string_view::npos) {
      out += {'\\', kLetters[at]};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string print_double(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", number);  // the shortest that reads back
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class Items, class Print>
std::string join(const Items& items, const char* open, const char* close, Print print) {
  std::string out = open;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    out += print(item);
  }
  return out + close;
}

enum class Form { Toml, Json };

std::string print_as(Form form, const Value& value) {
  const bool json = form == Form::Json;
  const auto print = [form](const Value& item) { return print_as(form, item); };
  return std::visit(
      Overload{[](bool b) { return std::string(b ? "true" : "false"); },
               [](int64_t n) { return std::to_string(n); },
               [&](double d) {
                 return json && !std::isfinite(d) ? std::string("null") : print_double(d);
               },
               [](const std::string& s) { return quote(s); },
               [&](const Value::Date& d) { return json ? quote(d.text) : d.text; },
               [&](const Array& a) { return join(a, "[", "]", print); },
               [&](const Table& t) {
                 if (t.empty()) return std::string("{}");
                 return join(
                     t, json ? "{" : "{ ", json ? "}" : " }", [&](const Entry& e) {
                       return (json ? quote(e.key) + ": " : print_key(e.key) + " = ") +
                              print(e.value);
                     });
               }},
      value.data);
}

}  // namespace

std::string_view Value::kind() const {
  return std::visit(
      Overload{[](bool) { return "a boolean"; }, [](int64_t) { return "an integer"; },
               [](double) { return "a number with a fraction or exponent"; },
               [](const std::string&) { return "a string"; },
               [](const Date&) { return "a date"; },
               [](const Array&) { return "an array"; },
               [](const Table&) { return "a table"; }},
      data);
}

Entry* find(Table& table, std::string_view key) {
  for (Entry& entry : table) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const Entry* find(const Table& table, std::string_view key) {
  return find(const_cast<Table&>(table), key);
}

std::string print_key(std::string_view key) {
  const bool bare = !key.empty() && key.find_first_not_of(
                                        "abcdefghijklmnopqrstuvwxyz"
                                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_-") == std::string_view::npos;
  return bare ? std::string(key) : quote(key);
}

std::string print_value(const Value& value) { return print_as(Form::Toml, value); }

std::string print_json(const Value& value) { return print_as(Form::Json, value); }

}  // namespace longhaul::config
