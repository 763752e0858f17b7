#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "longhaul/translate/shell_words.h"

namespace longhaul::translate {

/// The variables that the commands of a text set, if their values are certain without a
/// shell: plain assignments and arrays outside of conditions, loops and functions. A name
/// that a condition may set has no value here. An array that a condition may extend ends
/// in a variable.
class ShellVariables {
 public:
  /// Notes the assignments of a command. `conditional`: the command stands behind && or
  /// ||.
  void note(const ShellCommand& command, bool conditional);
  /// Notes an array; `target` is "NAME=" or "NAME+=".
  void set_array(std::string_view target, ShellCommand words, bool conditional);
  /// Returns the words that "$NAME", "${NAME}" or "${NAME[@]}" stands for, inside or
  /// outside of double quotes; nothing if the value is not certain.
  std::optional<ShellCommand> find(std::string_view piece, bool quoted) const;

 private:
  void set(std::string_view word, ShellCommand value, bool conditional);
  void change_depth(const ShellCommand& command, size_t first);
  bool set_by_other_means(const ShellCommand& command, size_t first);

  std::map<std::string, ShellCommand, std::less<>> values_;
  int depth_ = 0;  ///< nesting of conditions, loops and functions
};

/// Returns the length of "NAME" in "NAME=..." or "NAME+=...", or 0 if the text is no
/// assignment.
size_t assigned_name_size(std::string_view text);

}  // namespace longhaul::translate
