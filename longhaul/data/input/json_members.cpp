#include "longhaul/data/input/json_members.h"

#include <string>

#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxDepth = 10'000;

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Scans JSON for split_members. Each function begins at the element of its name and
/// moves past this element. A function returns false if the text has another element.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  bool take(char c) {
    if (peek() != c || done()) return false;
    ++at_;
    return true;
  }
  void space() {
    while (!done() && std::string_view(" \t\n\r").find(text_[at_]) != text_.npos) ++at_;
  }

  bool string() {
    if (!take('"')) return false;
    while (!done()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  /// Walks over `"key" :`.
  bool key() {
    space();
    if (!string()) return false;
    space();
    return take(':');
  }

  /// Walks over any value, without recursion.
  bool value() {
    std::string open;  // open brackets, the innermost last
    while (true) {
      space();
      const char c = peek();
      if (c == '{' || c == '[') {
        ++at_;
        space();
        if (!take(closing(c))) {
          if (open.size() == kMaxDepth) return false;
          open.push_back(c);
          if (c == '{' && !key()) return false;
          continue;
        }
      } else if (!scalar()) {
        return false;
      }
      if (!go_on(open)) return false;
      if (open.empty()) return true;
    }
  }

 private:
  /// Returns the next character; '\0' at the end.
  char peek() const { return done() ? '\0' : text_[at_]; }
  static char closing(char open) { return open == '{' ? '}' : ']'; }

  /// Closes brackets after a value, up to the place where the next value begins. Returns
  /// false for wrong grammar.
  bool go_on(std::string& open) {
    while (!open.empty()) {
      space();
      if (take(',')) return open.back() == '[' || key();
      if (!take(closing(open.back()))) return false;
      open.pop_back();
    }
    return true;
  }

  bool escape() {
    if (done()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (!is_hex(peek())) return false;
    }
    return true;
  }

  bool scalar() {
    if (peek() == '"') return string();
    for (const std::string_view word :
         {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return true;
    }
    return number();
  }

  bool digits() {
    const size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return at_ > begin;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    return digits();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

FirstValue first_value(std::string_view text) {
  Scanner scanner(text);
  const bool whole = scanner.value();
  return {scanner.at(), whole || scanner.done(), !whole && scanner.done()};
}

std::optional<std::vector<RawMember>> split_members(std::string_view text) {
  Scanner scanner(text);
  std::vector<RawMember> members;
  scanner.space();
  if (!scanner.take('{')) return std::nullopt;
  scanner.space();
  bool more = !scanner.take('}');
  while (more) {
    scanner.space();
    const size_t key = scanner.at();
    if (!scanner.string()) return std::nullopt;
    const size_t key_end = scanner.at();
    scanner.space();
    if (!scanner.take(':')) return std::nullopt;
    scanner.space();
    const size_t value = scanner.at();
    if (!scanner.value()) return std::nullopt;
    members.push_back(
        {text.substr(key, key_end - key), text.substr(value, scanner.at() - value)});
    scanner.space();
    more = scanner.take(',');
    if (!more && !scanner.take('}')) return std::nullopt;
  }
  scanner.space();
  if (!scanner.done()) return std::nullopt;
  return members;
}

}  // namespace longhaul::data
