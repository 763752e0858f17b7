#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <iterator>

#include "apps/start_environment.h"

// OpenMP's threads wait for each other at the end of every parallel loop. By default they
// spin for milliseconds. If another process wants the core (ranks beside each other,
// another job), the working thread then waits for the spinning one. OpenMP's library
// reads how long to spin when it is loaded, and the C library decides on large pages when
// it starts. So a program that was started without these variables starts itself once
// more. It does so before any library is initialised, since that takes time.

namespace longhaul::apps {
namespace {

/// A program with more variables than this in its environment does not start itself
/// again.
constexpr size_t kMostVariables = 8192;

/// Starts this program again with the variables of kStartEnvironment. It uses system
/// calls only, because the C library is not initialised at this time. Where something
/// fails, the program goes on with the environment that it has.
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
  // The program is started by its file name, because ps would show /proc/self/exe.
  std::array<char, PATH_MAX> program{};
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0) return;
  ::execve(program.data(), argv, const_cast<char**>(variables.data()));
}

}  // namespace
}  // namespace longhaul::apps

/// Is called by the dynamic loader before the constructors of all libraries.
[[gnu::section(".preinit_array"), gnu::used]] static void (*const before_all)(
    int, char**, char**) = longhaul::apps::start_again_with_variables;
