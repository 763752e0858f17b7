#include "longhaul/translate/shell_words.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/translate/shell_runner.h"

namespace longhaul::translate {
namespace {

constexpr size_t kMostOfACondition = 60;

/// Splits a text into words, and gives the words to a ShellRunner.
class Splitter {
 public:
  Splitter(std::string_view text, const std::string& name, const ShellSettings& settings)
      : text_(text), name_(name), runner_(settings, name) {}

  ShellText split() {
    read_to_end();
    if (in_array_) fail_open("an array (=()", array_from_);
    return runner_.finish();
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void add(char c) {
    item_.word.text += c;
    open_ = true;
  }

  void read_to_end() {
    while (at_ < text_.size()) {
      if (in_array_) {
        array_step();
      } else if (runner_.in_pattern()) {
        pattern_step();
      } else if (!operator_step()) {
        step();
      }
    }
    if (!in_array_) end_command();
  }

  void end_word() {
    if (!open_) return;
    ShellItem item = std::exchange(item_, {});
    open_ = false;
    if (in_heredoc_word_) {
      heredocs_.push_back(std::move(item.word.text));
      in_heredoc_word_ = redirected_ = false;
    } else if (redirected_ && !in_array_) {
      redirected_ = false;
    } else if (in_array_) {
      array_expanded_ = array_expanded_ || item.expanded;
      array_.push_back(std::move(item.word));
    } else {
      begin_command();
      runner_.word(std::move(item), at_);
      if (!runner_.has_words()) command_from_ = std::string_view::npos;
    }
  }

  void begin_command() {
    if (command_from_ == std::string_view::npos) command_from_ = word_from_;
  }

  /// Ends a command, and runs the function that it calls.
  void end_command() {
    end_word();
    redirected_ = false;
    const size_t from = std::min(command_from_, at_);
    command_from_ = std::string_view::npos;
    const std::string_view written =
        trimmed(text_.substr(from, std::min(at_ - from, kMostOfACondition)));
    if (const auto body = runner_.end_command(written)) call(*body);
  }

  void call(const ShellBody& body) {
    const std::string_view text = std::exchange(text_, text_.substr(0, body.end));
    const size_t at = std::exchange(at_, body.begin);
    const std::vector<std::string> heredocs = std::exchange(heredocs_, {});
    read_to_end();
    in_array_ = false;
    runner_.end_call(body);
    text_ = text;
    at_ = at;
    heredocs_ = heredocs;
    command_from_ = std::string_view::npos;
  }

  [[noreturn]] void fail_open(const char* what, size_t from) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(from), '\n');
    fail_input("flags",
               "{}:{}: {} is opened and never closed; give the command line whole", name_,
               line + 1, what);
  }

  /// Reads a sign that ends a command, and the signs of [[ ]] and (( )).
  bool operator_step() {
    const char c = peek();
    if (runner_.in_brackets() && !open_quote_sign(c)) return false;
    if (runner_.in_brackets()) {
      end_word();
      const bool twice = peek(1) == c && (c == '&' || c == '|');
      item_.word.text = text_.substr(at_, twice ? 2 : 1);
      at_ += twice ? 2 : 1;
      open_ = true;
      end_word();
      return true;
    }
    if (c == '(' && !open_) return open_parenthesis();
    if (c == '(' && peek(1) == ')' && runner_.names_function(item_)) {
      at_ += 2;
      runner_.define(std::exchange(item_, {}).word.text);
      open_ = false;
      return true;
    }
    if (c == ')' && runner_.in_subshell()) {
      end_command();
      ++at_;
      runner_.close_subshell();
      return true;
    }
    if (c == ';' && peek(1) == ';') {
      end_command();
      while (peek() == ';' || peek() == '&') ++at_;
      runner_.end_case_part();
      return true;
    }
    return false;
  }

  static bool open_quote_sign(char c) {
    return std::string_view("&|()<>").find(c) != std::string_view::npos;
  }

  bool open_parenthesis() {
    if (peek(1) == '(') {
      const size_t end = text_.find("))", at_);
      if (end == std::string_view::npos) fail_open("((", at_);
      begin_command();
      runner_.arithmetic(text_.substr(at_ + 2, end - at_ - 2));
      at_ = end + 2;
      return true;
    }
    if (peek(1) == ')' && runner_.define_last()) {
      at_ += 2;
      return true;
    }
    if (!runner_.open_subshell()) return false;
    ++at_;
    return true;
  }

  /// Takes one step through the patterns of a `case`. The ")" behind the patterns ends
  /// them.
  void pattern_step() {
    const char c = peek();
    if (c == '|' || c == '(' || c == ')' || c == '\n' || c == ';') {
      end_word();
      ++at_;
      if (c == ')') runner_.end_patterns();
      return;
    }
    step();
  }

  void step() {
    const char c = peek();
    if (!open_) word_from_ = at_;
    if (c == '\\') return escape();
    if (c == '\'') return single_quotes();
    if (c == '"') return double_quotes();
    if (c == '$' || c == '`') return replacement(false);
    if (c == '#' && !open_) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
      ++at_;
      return;
    }
    if (c == '>' || c == '<') return redirection();
    // "&>log" is a redirection, but "a &" ends a command.
    if (c == '&' && peek(1) == '>') {
      end_word();
      ++at_;
      return redirection();
    }
    if (c == '\n' || c == ';' || c == '|' || c == '&') return end_of_command(c);
    if (c == '(' && open_ && !item_.target.empty() && item_.word.text.empty()) {
      return open_array();
    }
    if (c == '=' && !in_array_ && runner_.takes_target(item_)) {
      item_.target = std::exchange(item_.word.text, {}) + '=';
      open_ = true;
      ++at_;
      return;
    }
    if (c == '~' && item_.word.text.empty()) item_.word.variable = true;
    add(c);
    ++at_;
  }

  void end_of_command(char c) {
    if (runner_.in_brackets() && c == '\n') {
      end_word();
      ++at_;
      return;
    }
    end_command();
    const bool twice = (c == '|' || c == '&') && peek(1) == c;
    at_ += twice ? 2 : 1;
    if (twice) runner_.and_or(c == '|');
    if (c == '\n') skip_heredocs();
  }

  /// Leaves out the texts behind "<<EOF".
  void skip_heredocs() {
    for (const std::string& end : std::exchange(heredocs_, {})) {
      while (at_ < text_.size()) {
        const size_t stop = std::min(text_.find('\n', at_), text_.size());
        const std::string_view line = trimmed(text_.substr(at_, stop - at_));
        at_ = std::min(stop + 1, text_.size());
        if (line == end) break;
      }
    }
  }

  void open_array() {
    array_target_ = std::exchange(item_, {}).target;
    array_from_ = at_++;
    open_ = false;
    in_array_ = true;
    array_expanded_ = false;
    begin_command();
  }

  /// Reads an array NAME=( ... ), in which a line end is a blank.
  void array_step() {
    const char c = peek();
    if (c == ')') {
      end_word();
      in_array_ = false;
      runner_.assign_array(array_target_, std::exchange(array_, {}), array_expanded_);
      ++at_;
    } else if (std::string_view("\n;|&<>(").find(c) != std::string_view::npos) {
      end_word();
      ++at_;
    } else {
      step();
    }
  }

  void escape() {
    if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) {
      at_ += peek(1) == '\n' ? 2 : 3;
      return;
    }
    if (at_ + 1 < text_.size()) add(text_[at_ + 1]);
    item_.word.quoted = true;
    at_ = std::min(at_ + 2, text_.size());
  }

  void single_quotes() {
    const size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) fail_open("a quote (')", at_);
    item_.word.text += text_.substr(at_ + 1, end - at_ - 1);
    item_.word.quoted = open_ = true;
    at_ = end + 1;
  }

  void double_quotes() {
    const size_t from = at_++;
    item_.word.quoted = open_ = true;
    while (peek() != '"') {
      if (at_ >= text_.size()) fail_open("a quote (\")", from);
      if (peek() == '$' || peek() == '`') {
        replacement(true);
      } else if (peek() == '\\' && peek(1) == '\n') {
        at_ += 2;
      } else if (peek() == '\\' &&
                 std::string_view("\"\\$`").find(peek(1)) != std::string_view::npos) {
        add(peek(1));
        at_ += 2;
      } else {
        add(peek());
        ++at_;
      }
    }
    ++at_;
  }

  /// Replaces "$NAME", "${NAME[@]}", "$((1 + 2))" and so on by what the text sets them
  /// to. "$(command)", "`command`" and unknown names stay.
  void replacement(bool quoted) {
    const size_t end = shell_piece_end(text_, at_);
    if (end == std::string_view::npos) {
      const char* const what = peek() == '`' ? "a command (`)" : "${";
      fail_open(peek(1) == '(' ? "$(" : what, at_);
    }
    const std::string_view piece = text_.substr(at_, end - at_);
    at_ = end;
    if (piece == "$") return add('$');
    // An assignment is not split at blanks.
    const bool whole = quoted || (!in_array_ && !item_.target.empty());
    item_.expanded = true;
    const ShellWords words = runner_.expand(piece, whole);
    for (size_t i = 0; i < words.size(); ++i) {
      if (i > 0 && !item_.target.empty()) item_.word.text += ' ';
      if (i > 0 && item_.target.empty()) end_word();
      if (i > 0) item_.expanded = true;
      add_to_word(item_.word, words[i]);
      item_.word.quoted = item_.word.quoted || quoted;
      open_ = true;
    }
    if (words.empty() && !open_ && !quoted) runner_.vanished(piece);
  }

  void redirection() {
    const bool is_number =
        open_ && !item_.word.quoted && item_.target.empty() &&
        item_.word.text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) {
      item_ = {};
      open_ = false;
    }
    end_word();
    in_heredoc_word_ = text_.substr(at_).starts_with("<<") && peek(2) != '<';
    while (peek() == '>' || peek() == '<' || peek() == '&') ++at_;
    if (in_heredoc_word_ && peek() == '-') ++at_;
    redirected_ = true;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  ShellItem item_;
  bool open_ = false;
  bool redirected_ = false;
  bool in_heredoc_word_ = false;
  std::vector<std::string> heredocs_;
  size_t word_from_ = 0;
  size_t command_from_ = std::string_view::npos;
  bool in_array_ = false;
  bool array_expanded_ = false;
  std::string array_target_;
  size_t array_from_ = 0;
  ShellWords array_;
  ShellRunner runner_;
};

}  // namespace

ShellText read_shell_text(std::string_view text, const std::string& name,
                          const ShellSettings& settings) {
  return Splitter(text, name, settings).split();
}

}  // namespace longhaul::translate
