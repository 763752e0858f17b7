#include "longhaul/translate/shell_words.h"

#include <fmt/format.h>
#include <algorithm>

#include <cctype>

#include "longhaul/base/error.h"

namespace longhaul::translate {
namespace {

class Splitter {
 public:
  Splitter(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::vector<ShellCommand> split() {
    while (at_ < text_.size()) step();
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
    if (open_ && !redirected_) command_.push_back(word_);
    if (open_) redirected_ = false;
    word_ = {};
    open_ = false;
  }

  void end_command() {
    end_word();
    redirected_ = false;
    if (!command_.empty()) commands_.push_back(std::move(command_));
    command_.clear();
  }

  [[noreturn]] void fail_open(const char* what, size_t from) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(from), '\n');
    throw InputError("flags",
                     fmt::format("{}:{}: {} is opened and never closed; give the "
                                 "command line whole",
                                 name_, line + 1, what));
  }

  void step() {
    const char c = peek();
    if (c == '\\') return escape();
    if (c == '\'') return single_quotes();
    if (c == '"') return double_quotes();
    if (c == '$' || c == '`') return replacement();
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
    // "&>log" is a redirection, "a &" the end of a command.
    if (c == '&' && peek(1) == '>') {
      end_word();
      ++at_;
      return redirection();
    }
    if (c == '\n' || c == ';' || c == '|' || c == '&') {
      end_command();
      ++at_;
      return;
    }
    if (c == '~' && !open_) word_.variable = true;
    add(c);
    ++at_;
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
        replacement();
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

  /// "$NAME", "${NAME}", "$(command)" and "`command`" stand as they are.
  void replacement() {
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
      const auto is_name = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      };
      while (end < text_.size() && is_name(text_[end])) ++end;
      if (end == at_ + 1 && end < text_.size() &&
          std::string_view("@*#?!").find(text_[end]) != std::string_view::npos)
        ++end;
    }
    word_.variable = word_.variable || end > from + 1;
    word_.text += text_.substr(from, end - from);
    open_ = true;
    at_ = end;
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
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> split_shell_text(std::string_view text,
                                           const std::string& name) {
  return Splitter(text, name).split();
}

}  // namespace longhaul::translate
