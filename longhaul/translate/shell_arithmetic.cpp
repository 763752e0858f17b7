#include "longhaul/translate/shell_arithmetic.h"

#include <algorithm>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

using Number = std::optional<int64_t>;

struct Operator {
  std::string_view sign;
  int rank;  ///< a higher rank binds closer
};

// A sign stands before those that it begins with.
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3},
                                   {"<=", 4}, {">=", 4}, {"<<", 0}, {">>", 0},
                                   {"<", 4},  {">", 4},  {"**", 0}, {"+", 5},
                                   {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};
constexpr int kMostParentheses = 64;

Number joined(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  if (sign == "||") return a != 0 || b != 0 ? 1 : 0;
  if (sign == "&&") return a != 0 && b != 0 ? 1 : 0;
  if (sign == "==") return a == b ? 1 : 0;
  if (sign == "!=") return a != b ? 1 : 0;
  if (sign == "<=") return a <= b ? 1 : 0;
  if (sign == ">=") return a >= b ? 1 : 0;
  if (sign == "<") return a < b ? 1 : 0;
  if (sign == ">") return a > b ? 1 : 0;
  if (sign == "*") return checked_product(a, b);
  if (sign == "+") {
    if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
    return result;
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
    return result;
  }
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  return sign == "/" ? a / b : a % b;
}

class ArithmeticReader {
 public:
  ArithmeticReader(std::string_view text, const ShellNumber& number)
      : text_(text), number_(number) {}

  Number read() {
    skip();
    if (text_.empty()) return 0;
    const Number result = choice(0);
    skip();
    return wrong_ || !text_.empty() ? std::nullopt : result;
  }

 private:
  void skip() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  }

  bool take(std::string_view sign) {
    skip();
    if (!text_.starts_with(sign)) return false;
    text_.remove_prefix(sign.size());
    return true;
  }

  Number fail() {
    wrong_ = true;
    text_ = {};
    return std::nullopt;
  }

  /// Reads "a ? b : c", which binds least.
  Number choice(int depth) {
    const Number condition = binary(1, depth);
    if (!take("?")) return condition;
    if (depth > kMostParentheses) return fail();
    const Number yes = choice(depth + 1);
    if (!take(":")) return fail();
    const Number no = choice(depth + 1);
    if (!condition) return std::nullopt;
    return *condition != 0 ? yes : no;
  }

  Number binary(int least, int depth) {
    Number left = operand(depth);
    for (;;) {
      skip();
      const auto* const found = std::ranges::find_if(
          kOperators, [&](const Operator& one) { return text_.starts_with(one.sign); });
      if (found == std::end(kOperators) || (found->rank > 0 && found->rank < least)) {
        return left;
      }
      text_.remove_prefix(found->sign.size());
      if (found->rank == 0 || text_.starts_with("=")) return fail();
      const Number right = binary(found->rank + 1, depth);
      left = left && right ? joined(found->sign, *left, *right) : std::nullopt;
    }
  }

  Number operand(int depth) {
    if (depth > kMostParentheses) return fail();
    if (text_.starts_with("++") || text_.starts_with("--")) return fail();
    if (take("(")) {
      const Number inside = choice(depth + 1);
      return take(")") ? inside : fail();
    }
    if (take("!")) {
      const Number value = operand(depth + 1);
      return value ? Number(*value == 0 ? 1 : 0) : std::nullopt;
    }
    if (take("-")) {
      const Number value = operand(depth + 1);
      return value ? joined("-", 0, *value) : std::nullopt;
    }
    if (take("+")) return operand(depth + 1);
    const auto size = static_cast<size_t>(
        std::ranges::find_if_not(text_, is_word_character) - text_.begin());
    if (size == 0) return fail();
    const std::string_view word = text_.substr(0, size);
    text_.remove_prefix(size);
    if (!is_digit(word[0])) return number_(std::string(word));
    // A leading 0 is of octal numbers, and "0x" of hexadecimal ones.
    if (word.size() > 1 && word[0] == '0') return fail();
    return whole_number<int64_t>(word);
  }

  std::string_view text_;
  const ShellNumber& number_;
  bool wrong_ = false;
};

}  // namespace

Number shell_arithmetic(std::string_view text, const ShellNumber& number) {
  return ArithmeticReader(text, number).read();
}

}  // namespace longhaul::translate
