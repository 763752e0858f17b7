#include "longhaul/system/process_title.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace longhaul::system {
namespace {

/// The memory of the arguments and of the environment behind them. A process has one of
/// each.
struct Area {
  char* begin = nullptr;
  size_t arguments = 0;  ///< bytes, the last NUL included
  size_t all = 0;
  // These are the copies that other code uses until the process ends. setenv() does not
  // free them.
  char** kept_arguments = nullptr;
  char** kept_environment = nullptr;
};
Area area;

/// Returns the end of strings that lie one behind the other from `at` on.
char* end_of(char* at, char* const* strings) {
  for (; *strings != nullptr && *strings == at; ++strings) at += std::strlen(at) + 1;
  return at;
}

char** copies_of(char* const* strings) {
  std::vector<char*> copies;
  for (; *strings != nullptr; ++strings) copies.push_back(::strdup(*strings));
  copies.push_back(nullptr);
  auto* list = new char*[copies.size()];
  std::ranges::copy(copies, list);
  return list;
}

}  // namespace

char** keep_arguments(int argc, char** argv) {
  if (argc < 1 || area.begin != nullptr) return argv;
  area.begin = argv[0];
  char* const end = end_of(area.begin, argv);
  area.arguments = static_cast<size_t>(end - area.begin);
  area.all = static_cast<size_t>(end_of(end, environ) - area.begin);
  // glibc has pointers of its own into the arguments, so their strings are copied too.
  program_invocation_name = ::strdup(program_invocation_name);
  program_invocation_short_name = ::strdup(program_invocation_short_name);
  environ = area.kept_environment = copies_of(environ);
  area.kept_arguments = copies_of(argv);
  return area.kept_arguments;
}

void set_process_title(std::string_view title) {
  if (area.begin == nullptr) return;
  const size_t length = std::min(title.size(), area.all - 1);
  std::memcpy(area.begin, title.data(), length);
  // A kernel that finds no NUL at the end of the arguments reads on to the first NUL. The
  // title overwrites as little of the environment as it can, since tools read it from
  // outside.
  const size_t end = std::max(area.arguments, length + 1);
  std::memset(area.begin + length, 0, end - length);
}

}  // namespace longhaul::system
