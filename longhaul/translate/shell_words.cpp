#include "longhaul/translate/shell_words.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/translate/shell_variables.h"

namespace longhaul::translate {
namespace {

constexpr size_t kMostReplaced = size_t{4} << 20;

class Splitter {
 public:
  Splitter(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::vector<ShellCommand> split() {
    while (at_ < text_.size()) in_array_ ? array_step() : step();
    if (in_array_) fail_open("an array (=()", array_from_);
    end_command();
    return std::move(commands_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void add(char c) {
    word_.text += c;
    open_ = true;
  }

  void end_word() {
    if (open_ && !redirected_) (in_array_ ? array_ : command_).push_back(word_);
    if (open_) redirected_ = false;
    word_ = {};
    open_ = false;
  }

  void end_command() {
    end_word();
    redirected_ = false;
    if (!command_.empty()) {
      variables_.note(command_, conditional_);
      commands_.push_back(std::move(command_));
    }
    command_.clear();
  }

  [[noreturn]] void fail_open(const char* what, size_t from) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(from), '\n');
    fail_input("flags",
               "{}:{}: {} is opened and never closed; give the command line whole", name_,
               line + 1, what);
  }

  void step() {
    const char c = peek();
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
    if (c == '\n' || c == ';' || c == '|' || c == '&') {
      end_command();
      conditional_ = (c == '|' || c == '&') && peek(1) == c;
      at_ += conditional_ ? 2 : 1;
      return;
    }
    if (c == '(' && open_ && !word_.quoted && word_.text.ends_with('=') &&
        assigned_name_size(word_.text) + 2 >= word_.text.size()) {
      return open_array();
    }
    if (c == '~' && !open_) word_.variable = true;
    add(c);
    ++at_;
  }

  void open_array() {
    array_target_ = word_.text;
    array_from_ = at_++;
    word_ = {};
    open_ = false;
    in_array_ = true;
  }

  /// Reads an array NAME=( ... ), in which a line end is a blank.
  void array_step() {
    const char c = peek();
    if (c == ')') {
      end_word();
      in_array_ = false;
      variables_.set_array(array_target_, std::move(array_), conditional_);
      array_.clear();
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
    at_ = std::min(at_ + 2, text_.size());
  }

  void single_quotes() {
    const size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) fail_open("a quote (')", at_);
    word_.text += text_.substr(at_ + 1, end - at_ - 1);
    word_.quoted = open_ = true;
    at_ = end + 1;
  }

  void double_quotes() {
    const size_t from = at_++;
    word_.quoted = open_ = true;
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

  /// Replaces "$NAME" and "${NAME[@]}" by what the text sets them to. "$(command)",
  /// "`command`" and other names stay.
  void replacement(bool quoted) {
    const size_t from = at_;
    size_t end = at_ + 1;
    if (peek() == '`') {
      end = text_.find('`', end);
      if (end == std::string_view::npos) fail_open("a command (`)", from);
      ++end;
    } else if (peek(1) == '{' || peek(1) == '(') {
      const char open = peek(1);
      const char close = open == '{' ? '}' : ')';
      int depth = 0;
      for (; end < text_.size(); ++end) {
        depth += (text_[end] == open ? 1 : 0) - (text_[end] == close ? 1 : 0);
        if (depth == 0) break;
      }
      if (end >= text_.size()) fail_open(open == '{' ? "${" : "$(", from);
      ++end;
    } else {
      while (end < text_.size() && is_word_character(text_[end])) ++end;
      if (end == at_ + 1 && end < text_.size() &&
          std::string_view("@*#?!").find(text_[end]) != std::string_view::npos)
        ++end;
    }
    at_ = end;
    const std::string_view piece = text_.substr(from, end - from);
    // An assignment is not split at blanks.
    const bool whole = quoted || (!in_array_ && assigned_name_size(word_.text) > 0);
    if (const auto words = variables_.find(piece, whole)) return replace(*words);
    word_.variable = word_.variable || piece.size() > 1;
    word_.text += piece;
    open_ = true;
  }

  void replace(const ShellCommand& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (i > 0) end_word();
      word_.text += words[i].text;
      word_.variable = word_.variable || words[i].variable;
      open_ = true;
      replaced_ += words[i].text.size() + 1;
    }
    if (replaced_ > kMostReplaced) {
      fail_input("flags",
                 "{}: its variables stand for more than 4 MiB; give the command line "
                 "without them",
                 name_);
    }
  }

  void redirection() {
    const bool is_number =
        open_ && !word_.quoted &&
        word_.text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) {
      word_ = {};
      open_ = false;
    }
    end_word();
    while (peek() == '>' || peek() == '<' || peek() == '&') ++at_;
    redirected_ = true;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  ShellWord word_;
  bool open_ = false;
  bool redirected_ = false;
  ShellCommand command_;
  ShellVariables variables_;
  bool conditional_ = false;  ///< the command stands behind && or ||
  bool in_array_ = false;
  std::string array_target_;
  size_t array_from_ = 0;
  ShellCommand array_;
  size_t replaced_ = 0;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> split_shell_text(std::string_view text,
                                           const std::string& name) {
  return Splitter(text, name).split();
}

}  // namespace longhaul::translate
