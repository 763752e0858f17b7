#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <iterator>

#include "apps/start_environment.h"

// OpenMP's threads wait for each other at the end of every parallel loop. By default they
// spin for milliseconds, and where another process wants the core (ranks beside each
// other, another job), the one that works waits for the one that spins. The library reads
// how long to spin when it is loaded, the C library how to get its memory when it starts,
// so a program that was not started with that set (as `longhaul` starts it) starts itself
// once more, before any library is initialised, which is what takes time.

namespace longhaul::apps {
namespace {

/// A longer environment is left as it is.
constexpr size_t kMostVariables = 8192;

/// Calls nothing but the kernel: the C library is not initialised yet. Where something is
/// amiss, the program goes on as it is.
void start_again_with_variables(int /*argc*/, char** argv, char** environment) {
  // Started as an argument of the dynamic loader: its path is not the program's.
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
