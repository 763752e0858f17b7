#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::cluster {

struct CommandOptions {
  double deadline_seconds = 30;  ///< afterwards the command's process group is killed
  /// Most bytes kept of each stream; the rest is dropped.
  size_t output_bytes = size_t{1} << 20;
  /// Variables that are added to this process's environment or replace its variables; an
  /// empty value removes a variable.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string input;  ///< path of the file that the command reads; empty: no input
  /// The command writes to this process's own output, and nothing is kept.
  bool shares_output = false;
  /// Called about fifty times a second while the command runs. Returns the number of a
  /// signal that is then sent to the command's process group, or 0. Must not throw.
  std::function<int()> look;
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + n where signal n ended the command
  bool timed_out = false;
  bool cut_short = false;  ///< the command wrote more than output_bytes
  std::string output;
  std::string errors;
  double seconds = 0;

  bool ok() const { return exit_code == 0 && !timed_out; }
};

/// Runs a program, found by PATH, with arguments and without a shell, in a process group
/// of its own and with every signal at its default. Returns when the
/// program has ended, even if it left processes running in the background. Throws
/// TemporaryError if the program is absent or no process can be made. Thread-safe.
CommandResult run_command(const std::vector<std::string>& words,
                          const CommandOptions& options = {});

/// Returns whether a program of this name is in PATH.
bool has_program(const std::string& name);

/// Throws InputError, which ends with `advice`, if no program of this name is in PATH.
void require_program(const std::string& name, const std::string& area,
                     const std::string& advice);

}  // namespace longhaul::cluster
