#include "longhaul/base/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace longhaul {
namespace {

bool parent_has_terminal(int fd) {
  std::error_code error;
  const std::string file =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", ::getppid(), fd), error)
          .string();
  return file.starts_with("/dev/pts/") || file.starts_with("/dev/tty");
}

}  // namespace

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb") return false;
  if (::isatty(fd) != 1) return false;
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr || parent_has_terminal(fd);
}

}  // namespace longhaul
