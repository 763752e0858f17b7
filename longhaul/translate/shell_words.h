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

/// The commands of a text, as a shell parts them, with their words: at line ends, ;, |, &
/// and their doubles. A backslash joins lines, # begins a comment, redirections are left
/// out. Variables that the text itself sets are replaced where their value is certain
/// (ShellVariables); nothing is run. InputError names an open quote and its line.
std::vector<ShellCommand> split_shell_text(std::string_view text,
                                           const std::string& name);

}  // namespace longhaul::translate
