#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "apps/program.h"
#include "longhaul/system/terminal.h"

// The function has a file of its own, because a tool of the tests has a verb without the
// program around it.
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
