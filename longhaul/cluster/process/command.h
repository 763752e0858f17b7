#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::cluster {

struct CommandOptions {
  double deadline_seconds = 30;           ///< then the command's process group is killed
  size_t output_bytes = size_t{1} << 20;  ///< kept of each stream; the rest is dropped
  std::string input;                      ///< for its standard input; small
  /// Variables on top of this process's environment; an empty value removes one.
  std::vector<std::pair<std::string, std::string>> environment;
  /// The command writes to this process's own output, and nothing of that is kept.
  bool shares_output = false;
  /// Called about fifty times a second while the command runs. The signal whose number it
  /// returns is sent to the command's process group; 0: none. It must not throw.
  std::function<int()> look;
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + the signal where one ended it
  bool timed_out = false;
  bool cut_short = false;  ///< it said more than output_bytes
  std::string output;
  std::string errors;
  double seconds = 0;

  bool ok() const { return exit_code == 0 && !timed_out; }
};

/// Runs a program, found by PATH, with arguments and without a shell, in a process group
/// of its own and with every signal at its default. Returns when it has ended: what it
/// left running in the background holds nobody up. TemporaryError where the program is
/// not there or no process can be made. Threads may call it at once.
CommandResult run_command(const std::vector<std::string>& words,
                          const CommandOptions& options = {});

/// Whether a program of this name is in PATH.
bool has_program(const std::string& name);

/// InputError where no program of this name is in PATH: `advice` says what to do.
void require_program(const std::string& name, const std::string& area,
                     const std::string& advice);

/// For messages: the command as a person would type it.
std::string describe_command(const std::vector<std::string>& words);

/// One word for a shell: as it is where that is safe, else in single quotes. InputError
/// for control characters.
std::string shell_word(const std::string& word);

/// Line breaks and the like, which no script and no list takes.
bool has_control_characters(std::string_view text);

}  // namespace longhaul::cluster
