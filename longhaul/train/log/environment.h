#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::train {

/// Returns whether the log and results.json may name an environment variable and its
/// value. They name what changes how a run computes, communicates and is placed. They
/// never name a variable whose name says that it holds a secret.
bool is_logged_variable(std::string_view name);

/// Returns the names and values of this process's variables that may be logged, sorted by
/// name. A value is cut after 1,000 bytes. No other thread may change the environment
/// during the call.
std::vector<std::pair<std::string, std::string>> logged_environment();

}  // namespace longhaul::train
