#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Reads the file "stat" of a directory such as /proc/4711. Returns the fields after the
/// process's name: the first field is the letter of the state, the second the parent's
/// process id. Returns no fields for a process that is gone.
std::vector<std::string> stat_fields(const std::string& directory);

/// Reads the words of a process's command line from a directory such as /proc/4711.
/// Returns no words for a process that is gone.
std::vector<std::string> command_line(const std::string& directory);

}  // namespace longhaul::cluster
