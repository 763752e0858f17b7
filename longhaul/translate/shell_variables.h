#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// The variables that the commands of a text set, as far as their values are certain
/// without a shell: plain assignments and arrays outside of conditions, loops and
/// functions. A name that a condition may set has no value here.
class ShellVariables {
 public:
  /// Takes the assignments of a command; `conditional`: it stands behind && or ||.
  void note(const ShellCommand& command, bool conditional);
  /// Takes an array; `target` is "NAME=" or "NAME+=".
  void set_array(std::string_view target, ShellCommand words, bool conditional);
  /// The words that "$NAME", "${NAME}" or "${NAME[@]}" stands for, inside double quotes
  /// or outside; nothing where its value is not certain.
  std::optional<ShellCommand> find(std::string_view piece, bool quoted) const;

 private:
  void set(std::string_view word, ShellCommand value, bool conditional);
  void change_depth(const ShellCommand& command, size_t first);
  bool set_by_other_means(const ShellCommand& command, size_t first);

  std::map<std::string, ShellCommand, std::less<>> values_;
  int depth_ = 0;  ///< of conditions, loops and functions
};

/// The length of "NAME" in "NAME=..." or "NAME+=..."; 0 where the text is no assignment.
size_t assigned_name_size(std::string_view text);

}  // namespace longhaul::translate
