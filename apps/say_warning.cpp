#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "apps/program.h"
#include "longhaul/system/terminal.h"

// The functions have a file of their own, so that a tool of the tests that runs one verb
// can link them without program.cpp.
namespace longhaul::apps {

void say_warning(const std::string& line) {
  fmt::print(stderr, "{} {}\n", system::warning_text("longhaul: warning:", STDERR_FILENO),
             system::printable(line));
}

void say_error(const std::string& line) {
  // The terminal may be gone. That an error cannot be printed is not reported as another
  // error.
  std::fputs(fmt::format("{} {}\n", system::error_text("longhaul: error:", STDERR_FILENO),
                         system::printable(line))
                 .c_str(),
             stderr);
}

}  // namespace longhaul::apps
