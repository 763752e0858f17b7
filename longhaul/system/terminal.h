#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::system {

/// Returns whether what is written to this descriptor (1 or 2) reaches a person's
/// terminal that understands control codes. mpirun gives every rank a terminal, even if
/// its own output is a file. So for a rank of mpirun the output of mpirun decides, and
/// the result is false on another machine.
bool is_terminal(int fd);

/// Returns whether to colour what is written to this descriptor (1 or 2): if
/// is_terminal(fd), unless NO_COLOR is set.
bool wants_colour(int fd);

/// Returns one line that a terminal shows and does not obey: control characters are
/// written out (\n, \x1b), whatever a path or a name brings along. Tabs stay.
std::string printable(std::string_view text);

/// Returns the text in yellow or red if wants_colour(fd), else as it is.
std::string warning_text(std::string_view text, int fd);
std::string error_text(std::string_view text, int fd);

/// Returns the command as a person would type it, for messages.
std::string describe_command(const std::vector<std::string>& words);

/// Returns a word for a shell: as it is if that is safe, else in single quotes. Throws
/// InputError for control characters.
std::string shell_word(const std::string& word);

/// Returns whether the text has control characters, such as line breaks, which scripts
/// and lists cannot hold.
bool has_control_characters(std::string_view text);

}  // namespace longhaul::system
