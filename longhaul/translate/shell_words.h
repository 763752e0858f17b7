#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::translate {

/// A word of a command line without its quotes. `variable`: a shell would have replaced
/// something in the word ("$NAME", "`...`", "~"), which stays as it was written.
struct ShellWord {
  std::string text;
  bool variable = false;
  bool quoted = false;
};

using ShellCommand = std::vector<ShellWord>;

/// Splits a text into commands and their words as a shell does. Commands end at line ends
/// and at the signs ; & && | and ||. A backslash joins lines, # begins a comment, and
/// redirections are left out. Variables that the text itself sets are replaced if their
/// value is certain (ShellVariables). Nothing is run. Throws InputError that names an
/// open quote and its line.
std::vector<ShellCommand> split_shell_text(std::string_view text,
                                           const std::string& name);

}  // namespace longhaul::translate
