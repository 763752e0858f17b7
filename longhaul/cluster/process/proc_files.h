#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Reads the file "stat" of a directory such as /proc/4711. Returns the fields behind the
/// process's name: the first is the state's letter, the second the parent. Empty for a
/// process that is gone.
std::vector<std::string> stat_fields(const std::string& directory);

/// Reads the words of a process's command line from a directory such as /proc/4711. Empty
/// for a process that is gone.
std::vector<std::string> command_line(const std::string& directory);

}  // namespace longhaul::cluster
