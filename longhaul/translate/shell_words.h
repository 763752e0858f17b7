#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::translate {

/// A word of a command line without its quotes.
struct ShellWord {
  std::string text;
  /// Only a shell can replace something in the word ("$NAME", "`...`", "~"), which stays
  /// as it was written.
  bool variable = false;
  bool quoted = false;
  /// The number of an unknown value, which all copies of the value share, or 0.
  uint64_t value = 0;
  /// The variables on which the word depends and that count as unset.
  std::set<std::string> unset = {};
  /// What the unknown part may be: "STEPS is 10 where [ -v TEST ], 30000 otherwise".
  std::string choices = {};
};

using ShellWords = std::vector<ShellWord>;

/// A command, and the variables on which it depends and that count as unset. Among these
/// are the variables of words that became empty, and of the conditions around the
/// command.
struct ShellCommand {
  ShellWords words;
  std::set<std::string> unset;
};

struct ShellText {
  std::vector<ShellCommand> commands;
  std::vector<std::string> remarks;  ///< files that may set other values
};

struct ShellSettings {
  /// The text is a whole script: a variable that the script never sets counts as unset.
  /// Else such a variable is unknown.
  bool whole = false;
  std::string directory = {};  ///< where the script lies
  /// Variables that the scheduler sets; without a value: unset.
  std::map<std::string, std::optional<std::string>> scheduler = {};
};

/// Splits a text into commands and their words as a shell does, and returns the commands
/// that a shell may run. Variables are replaced by what the text sets them to: plain
/// assignments, arrays, "${NAME:-default}", arithmetic, and what stands in `if`, `case`,
/// && and || if the text decides the condition. Else a variable has no value, and the
/// word says what the value may be. The body of a loop counts as run once or never.
/// Nothing is run. Throws InputError that names an open quote and its line, or a limit.
ShellText read_shell_text(std::string_view text, const std::string& name,
                          const ShellSettings& settings = {});

}  // namespace longhaul::translate
