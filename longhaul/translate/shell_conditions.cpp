#include "longhaul/translate/shell_conditions.h"

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

constexpr std::string_view kBinary = "= == != =~ < > -eq -ne -lt -le -gt -ge -nt -ot -ef";
constexpr std::string_view kFiles =
    "-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -L -N -O -G -S";
constexpr int kMostNested = 64;

/// Returns the number of a word. In [[ ]], which `wide` says, the empty text is 0.
std::optional<int64_t> number_of(const ShellWord& word, bool wide) {
  const std::string_view text = trimmed(word.text);
  if (text.empty()) return wide ? std::optional<int64_t>(0) : std::nullopt;
  return whole_number<int64_t>(text.starts_with('+') ? text.substr(1) : text);
}

Truth compared(const ShellWord& left, const std::string& sign, const ShellWord& right,
               bool wide) {
  if (sign == "=" || sign == "==" || sign == "!=") {
    ShellWord pattern = right;
    pattern.quoted = pattern.quoted || !wide;
    const Truth same = shell_match(left, pattern);
    return sign == "!=" ? opposite(same) : same;
  }
  if (left.variable || right.variable || !sign.starts_with('-')) return Truth::Unknown;
  if (sign == "-nt" || sign == "-ot" || sign == "-ef") return Truth::Unknown;
  const auto a = number_of(left, wide);
  const auto b = number_of(right, wide);
  if (!a || !b) return wide ? Truth::Unknown : Truth::No;
  if (sign == "-eq") return truth(*a == *b);
  if (sign == "-ne") return truth(*a != *b);
  if (sign == "-lt") return truth(*a < *b);
  if (sign == "-le") return truth(*a <= *b);
  return sign == "-gt" ? truth(*a > *b) : truth(*a >= *b);
}

/// Returns whether a word is empty. A word with text beside its unknown part is not
/// empty.
Truth empty(const ShellWord& word) {
  if (!word.variable) return truth(word.text.empty());
  return word.text.find_first_of("$`") == 0 ? Truth::Unknown : Truth::No;
}

class Test {
 public:
  Test(const ShellWords& words, const IsSet& is_set)
      : words_(words), is_set_(is_set), wide_(words.front().text == "[[") {
    const bool closed = words.front().text != "test";
    at_ = 1;
    end_ = words.size();
    if (closed && end_ > 1 && (words.back().text == "]" || words.back().text == "]]")) {
      --end_;
    }
  }

  Truth read() {
    if (at_ == end_) return Truth::No;
    for (size_t i = at_; i < end_; ++i) {
      if (is(i, "=~")) return Truth::Unknown;
    }
    // An unquoted variable may stand for several words.
    for (size_t i = at_; !wide_ && i < end_; ++i) {
      if (words_[i].variable && !words_[i].quoted) return Truth::Unknown;
    }
    const Truth result = either(0);
    return at_ == end_ ? result : Truth::No;
  }

 private:
  bool is(size_t place, std::string_view text) const {
    return place < end_ && words_[place].text == text && !words_[place].quoted;
  }

  bool take(std::string_view text) {
    if (!is(at_, text)) return false;
    ++at_;
    return true;
  }

  Truth either(int depth) {
    Truth result = both(depth);
    while (take("||") || (!wide_ && take("-o"))) {
      const Truth right = both(depth);
      if (right == Truth::Yes || result == Truth::No) result = right;
    }
    return result;
  }

  Truth both(int depth) {
    Truth result = one(depth);
    while (take("&&") || (!wide_ && take("-a"))) {
      const Truth right = one(depth);
      if (right == Truth::No || result == Truth::Yes) result = right;
    }
    return result;
  }

  Truth one(int depth) {
    if (at_ >= end_ || depth > kMostNested) {
      at_ = end_;
      return Truth::No;
    }
    const bool compares = at_ + 2 < end_ && has_word(kBinary, words_[at_ + 1].text) &&
                          !words_[at_ + 1].quoted;
    if (compares) {
      at_ += 3;
      return compared(words_[at_ - 3], words_[at_ - 2].text, words_[at_ - 1], wide_);
    }
    if (at_ + 1 < end_) {
      if (take("!")) return opposite(one(depth + 1));
      if (take("(")) {
        const Truth inside = either(depth + 1);
        if (!take(")")) at_ = end_;
        return inside;
      }
      if (const auto sign = unary()) return *sign;
    }
    return opposite(empty(words_[at_++]));
  }

  std::optional<Truth> unary() {
    const std::string& sign = words_[at_].text;
    if (words_[at_].quoted || !sign.starts_with('-')) return std::nullopt;
    const ShellWord& word = words_[at_ + 1];
    std::optional<Truth> result;
    if (sign == "-z") result = empty(word);
    if (sign == "-n") result = opposite(empty(word));
    if (sign == "-v") result = word.variable ? Truth::Unknown : is_set_(word.text);
    if (has_word(kFiles, sign)) result = Truth::Unknown;
    if (result) at_ += 2;
    return result;
  }

  const ShellWords& words_;
  const IsSet& is_set_;
  bool wide_;
  size_t at_ = 0;
  size_t end_ = 0;
};

}  // namespace

Truth truth(bool holds) { return holds ? Truth::Yes : Truth::No; }

Truth opposite(Truth truth) {
  if (truth == Truth::Unknown) return truth;
  return truth == Truth::Yes ? Truth::No : Truth::Yes;
}

Truth shell_condition(const ShellWords& words, const IsSet& is_set) {
  return Test(words, is_set).read();
}

Truth shell_match(const ShellWord& word, const ShellWord& pattern) {
  const bool glob = !pattern.quoted && has_wildcard(pattern.text);
  if (glob && pattern.text == "*") return Truth::Yes;
  if (word.variable || pattern.variable) return Truth::Unknown;
  if (!glob) return truth(word.text == pattern.text);
  if (pattern.text.find_first_of("[\\") != std::string::npos) return Truth::Unknown;
  return truth(glob_match(pattern.text, word.text));
}

}  // namespace longhaul::translate
