#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <iterator>

#include "apps/start_environment.h"

// OpenMP's threads wait for each other at the end of every parallel loop. By default they
// spin for milliseconds. If another process wants the core (ranks beside each other,
// another job), the working thread then waits for the spinning one. The library reads its
// time of spinning when it is loaded, and the C library chooses its memory when it
// starts. So a program that was started without these variables starts itself once more.
// It does so before any library is initialised, since that takes time.

namespace longhaul::apps {
namespace {

/// A longer environment is left as it is.
constexpr size_t kMostVariables = 8192;

/// Calls nothing but the kernel: the C library is not initialised yet. Where something is
/// amiss, the program goes on as it is.
void start_again_with_variables(int /*argc*/, char** argv, char** environment) {
  // If the dynamic loader got the program as an argument, the loader's path is not the
  // path of the program.
  if (::getauxval(AT_BASE) == 0) return;
  std::array<const char*, kMostVariables + std::size(kStartEnvironment) + 1> variables{};
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMostVariables) return;
    variables[count] = environment[count];
  }
  const size_t before = count;
  for (const StartVariable& variable : kStartEnvironment) {
    if (!is_decided(variable, environment)) variables[count++] = variable.assignment;
  }
  if (count == before) return;
  // By its name rather than as /proc/self/exe, which ps would show.
  std::array<char, PATH_MAX> program{};
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0) return;
  ::execve(program.data(), argv, const_cast<char**>(variables.data()));
}

}  // namespace
}  // namespace longhaul::apps

/// Run by the dynamic loader before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] static void (*const before_all)(
    int, char**, char**) = longhaul::apps::start_again_with_variables;
