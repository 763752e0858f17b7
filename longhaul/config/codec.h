#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "longhaul/base/text.h"
#include "longhaul/config/field.h"

// A Codec reads a C++ type of a setting from a Value and writes it to a Value. A new type
// is one more Codec; a new enum E is one more names_of(E), an array of the names of its
// values in their order.

namespace longhaul::config {

[[noreturn]] void fail_type(const Value& value, const std::string& name,
                            std::string_view expected);
[[noreturn]] void fail_choice(const Value& value, const std::string& name,
                              const std::vector<std::string>& choices);
/// Returns the names in quotes, with `between` between them.
std::string quoted(const std::vector<std::string>& names, std::string_view between);
/// Returns the whole number that a value says: 16000, 1e6, or a text such as "16k"
/// (config::read_count). Throws ConfigError for any other value.
int64_t read_whole(const Value& value, const std::string& name);
/// Throws ConfigError if a path holds text that only a shell replaces, such as "~" or
/// "$".
void check_expanded(const Value& value, const std::string& name, const std::string& path);

template <class T>
struct Codec;

template <>
struct Codec<bool> {
  static std::string type() { return "boolean"; }
  static void read(const Value& value, const std::string& name, bool& out) {
    const bool* given = std::get_if<bool>(&value.data);
    if (!given) fail_type(value, name, "true or false");
    out = *given;
  }
  static Value write(bool value) { return {value, ""}; }
};

template <>
struct Codec<int64_t> {
  static std::string type() { return "integer"; }
  static void read(const Value& value, const std::string& name, int64_t& out) {
    out = read_whole(value, name);
  }
  static Value write(int64_t value) { return {value, ""}; }
};

template <>
struct Codec<double> {
  static std::string type() { return "number"; }
  static void read(const Value& value, const std::string& name, double& out) {
    if (const int64_t* integer = std::get_if<int64_t>(&value.data)) {
      out = static_cast<double>(*integer);
      return;
    }
    const double* given = std::get_if<double>(&value.data);
    if (!given) fail_type(value, name, "a number");
    if (!std::isfinite(*given)) fail_at(value.where, name + " must be a finite number");
    out = *given;
  }
  static Value write(double value) { return {value, ""}; }
};

template <>
struct Codec<std::string> {
  static std::string type() { return "string"; }
  static void read(const Value& value, const std::string& name, std::string& out) {
    const std::string* given = std::get_if<std::string>(&value.data);
    if (!given) fail_type(value, name, "a string");
    out = *given;
  }
  static Value write(const std::string& value) { return {value, ""}; }
};

/// A given path must not be empty; an empty path is written as not given.
template <>
struct Codec<fs::path> {
  static std::string type() { return "path"; }
  static void read(const Value& value, const std::string& name, fs::path& out) {
    const std::string* given = std::get_if<std::string>(&value.data);
    if (!given) fail_type(value, name, "a path (a string)");
    if (given->empty())
      fail_at(value.where,
              "{} is an empty path; leave the key out (--set {}= takes it out)", name,
              name);
    if (given->find('\0') != std::string::npos) {
      fail_at(value.where, name + " holds a NUL character");
    }
    check_expanded(value, name, *given);
    out = *given;
  }
  static Value write(const fs::path& value) { return {value.string(), ""}; }
};

template <class E>
  requires std::is_enum_v<E>
struct Codec<E> {
  static std::vector<std::string> choices() {
    constexpr auto kNames = names_of(E{});
    return {kNames.begin(), kNames.end()};
  }
  static std::string type() { return quoted(choices(), " | "); }
  static void read(const Value& value, const std::string& name, E& out) {
    const std::vector<std::string> names = choices();
    if (const std::string* given = std::get_if<std::string>(&value.data)) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == *given) {
          out = static_cast<E>(i);
          return;
        }
      }
    }
    fail_choice(value, name, names);
  }
  static Value write(E value) {
    return {std::string(names_of(E{})[static_cast<size_t>(value)]), ""};
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static std::string type() { return "array of " + Codec<T>::type(); }
  static void read(const Value& value, const std::string& name, std::vector<T>& out) {
    const Array* given = std::get_if<Array>(&value.data);
    if (!given) fail_type(value, name, "an " + type());
    out.clear();
    for (size_t i = 0; i < given->size(); ++i) {
      T item{};
      Codec<T>::read((*given)[i], fmt::format("{}[{}]", name, i), item);
      out.push_back(std::move(item));
    }
  }
  static Value write(const std::vector<T>& value) {
    Array items;
    for (const T& item : value) items.push_back(Codec<T>::write(item));
    return {std::move(items), ""};
  }
};

template <>
struct Codec<std::array<double, 2>> {
  static std::string type() { return "two numbers"; }
  static void read(const Value& value, const std::string& name,
                   std::array<double, 2>& out) {
    const Array* given = std::get_if<Array>(&value.data);
    if (!given || given->size() != 2) fail_type(value, name, "an array of two numbers");
    for (size_t i = 0; i < 2; ++i) {
      Codec<double>::read((*given)[i], fmt::format("{}[{}]", name, i), out[i]);
    }
  }
  static Value write(const std::array<double, 2>& value) {
    return {Array{{value[0], ""}, {value[1], ""}}, ""};
  }
};

/// Reads and writes a struct with a fields_of of its own as an inline table.
template <class T>
  requires requires(T& t) { fields_of(t); }
struct Codec<T> {
  static std::string type() {
    T empty{};
    std::string out;
    for (const Field& field : fields_of(empty)) {
      out += (out.empty() ? "{ " : ", ") + field.key + " = " + field.type;
    }
    return out + " }";
  }
  static void read(const Value& value, const std::string& name, T& out) {
    const Table* given = std::get_if<Table>(&value.data);
    if (!given) fail_type(value, name, "a table such as " + type());
    set_fields(fields_of(out), *given, name);
    const std::string problem = problem_of(out);
    if (!problem.empty()) fail_at(value.where, name + problem);
  }
  static Value write(const T& value) {
    T copy = value;
    return {get_fields(fields_of(copy)), ""};
  }
};

namespace detail {
template <class T>
struct Optional {
  using type = T;
  static constexpr bool value = false;
};
template <class T>
struct Optional<std::optional<T>> {
  using type = T;
  static constexpr bool value = true;
};
}  // namespace detail

/// Returns a field that reads and writes a member, which must outlive the field.
template <class T>
Field make_field(std::string key, T& member, ResumeClass resume, std::string meaning) {
  using Inner = typename detail::Optional<T>::type;
  Field field;
  field.key = std::move(key);
  field.type = Codec<Inner>::type();
  field.meaning = std::move(meaning);
  field.resume = resume;
  field.set = [&member](const Value& value, const std::string& name) {
    Inner read{};
    Codec<Inner>::read(value, name, read);
    member = std::move(read);
  };
  field.get = [&member]() -> std::optional<Value> {
    if constexpr (detail::Optional<T>::value) {
      if (!member) return std::nullopt;
      return Codec<Inner>::write(*member);
    } else if constexpr (std::is_same_v<T, fs::path>) {
      if (member.empty()) return std::nullopt;
      return Codec<T>::write(member);
    } else {
      return Codec<T>::write(member);
    }
  };
  return field;
}

}  // namespace longhaul::config
