#pragma once

#include <string_view>

namespace longhaul::system {

/// Copies the arguments away from where the kernel shows them, so that
/// set_process_title() may write there, and returns the copies, which live as long as the
/// process. It must be the first call in main. Afterwards argv must not be used.
char** keep_arguments(int argc, char** argv);

/// Sets what ps shows of this process. The title is cut to the room of arguments and
/// environment; without keep_arguments() nothing happens. It takes a few nanoseconds and
/// no system call. One thread at a time may call it.
void set_process_title(std::string_view title);

}  // namespace longhaul::system
