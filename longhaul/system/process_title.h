#pragma once

#include <string_view>

namespace longhaul {

/// Copies the arguments away from where the kernel shows them, so that
/// set_process_title() may write there, and returns the copies, which live as long as the
/// process. First thing in main; argv itself must not be used afterwards.
char** keep_arguments(int argc, char** argv);

/// What ps shows of this process from now on. Cut to the room of arguments and
/// environment; without keep_arguments() it does nothing. A few nanoseconds, no system
/// call. One thread at a time.
void set_process_title(std::string_view title);

}  // namespace longhaul
