#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/translate/shell_expansion.h"
#include "longhaul/translate/shell_flow.h"
#include "longhaul/translate/shell_variables.h"
#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// A word with what stands in front of it in an assignment: "NAME=" or "NAME+=".
struct ShellItem {
  ShellWord word;
  std::string target;
  bool expanded = false;  ///< something was replaced in the word
  bool absent = false;    ///< stands for nothing, as its variable is never set
};

/// The place of a function's commands in the text.
struct ShellBody {
  size_t begin = 0;
  size_t end = 0;
  size_t depth = 0;  ///< constructs around the call
};

/// Follows the words of a text: collects the commands that a shell may run, and sets
/// variables.
class ShellRunner {
 public:
  ShellRunner(const ShellSettings& settings, const std::string& name);

  /// Takes a word; `at` is the index behind it.
  void word(ShellItem item, size_t at);
  /// Takes "NAME=( ... )". `expanded`: something in it was replaced.
  void assign_array(const std::string& target, ShellWords words, bool expanded);
  /// Takes "(( ... ))".
  void arithmetic(std::string_view text);
  /// Ends a command. Returns the body of the function that the command calls, if there is
  /// one. end_call() ends this call.
  std::optional<ShellBody> end_command(std::string_view written);
  void end_call(const ShellBody& body);
  /// Takes && or ||.
  void and_or(bool is_or);
  ShellText finish();

  /// Returns the words that a piece of a word stands for.
  ShellWords expand(std::string_view piece, bool whole);
  /// Notes a piece that stands for no word.
  void vanished(std::string_view piece);

  bool has_words() const { return !items_.empty() || header_ != Header::None; }
  bool takes_target(const ShellItem& item) const;
  bool in_brackets() const { return brackets_; }

  bool in_case() const { return flow_.is(ShellFlow::Kind::Case); }
  bool in_pattern() const { return in_case() && constructs_.back().pattern; }
  void end_patterns();
  void end_case_part();

  bool in_subshell() const { return flow_.around(ShellFlow::Kind::Subshell); }
  bool open_subshell();
  void close_subshell();

  /// Returns whether the word in front of "()" names a function, and begins the
  /// definition of the function if so.
  bool names_function(const ShellItem& item) const;
  void define(std::string name);
  bool define_last();

 private:
  enum class Header { None, For, Case, FunctionName, Function };
  using Kind = ShellFlow::Kind;

  struct Construct {
    bool until = false;    ///< of a loop
    bool pattern = false;  ///< of `case`: a pattern stands next
    ShellWord subject;
    ShellWords patterns;
    size_t begin = 0;  ///< of a function
    std::string name;
    bool is_or = false;
    Truth before = Truth::Unknown;
    std::set<std::string> unset;
  };

  void open(Kind kind);
  void close();
  bool reserved(const ShellItem& item, size_t at);
  bool opens(const std::string& text);
  bool closes(const std::string& text, size_t at);
  void begin_part(Truth condition);
  void end_loop_header();
  void completed();
  void run(std::vector<ShellItem> items);
  bool builtin(const std::vector<ShellItem>& items);
  void sourced(const std::string& command, const ShellWord& file);
  void set_by_command(const std::vector<ShellItem>& items);
  void emit(const std::vector<ShellItem>& items);
  bool only_assigns(const std::vector<ShellItem>& items) const;
  void assign(const std::string& target, ShellWords words, bool array, bool expanded);
  Truth test(const std::vector<ShellItem>& items);
  void use(const std::set<std::string>& unset);

  ShellVariables variables_;
  ShellExpansion expansion_;
  ShellFlow flow_;
  std::vector<Construct> constructs_;  ///< one for each of flow_
  std::vector<ShellItem> items_;
  Header header_ = Header::None;
  bool brackets_ = false;
  bool negated_ = false;
  bool worked_ = false;  ///< the command did something, though it may have no words
  Truth status_ = Truth::Unknown;
  std::string written_;
  std::set<std::string> used_;  ///< names that count as unset, in this command
  std::set<std::string> last_used_;
  std::map<std::string, ShellBody> functions_;
  std::string function_name_;
  int calls_ = 0;
  std::optional<ShellBody> call_;
  ShellText out_;
};

}  // namespace longhaul::translate
