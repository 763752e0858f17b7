#pragma once

#include <string>
#include <vector>

namespace longhaul::cluster {

/// Returns the names of this process's variables that every rank of a run is to have:
/// those of networks, of AWS and of object stores, and those that match one of `patterns`
/// (run.pass_environment). The names are sorted.
std::vector<std::string> passed_variables(const std::vector<std::string>& patterns);

/// Writes a line with the names to the output, for people; nothing without a name.
void tell_passed(const std::vector<std::string>& names);

/// Returns variables with their values, for the input of a process on another machine: no
/// command line and no file shows them there.
std::string variables_text(const std::vector<std::string>& names);

/// Reads what variables_text() returned, to the end of a descriptor, and sets the
/// variables. Throws InputError, which repeats no value, for anything else. No other
/// thread may use the environment meanwhile.
void take_variables(int fd);

}  // namespace longhaul::cluster
