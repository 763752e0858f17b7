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

std::string painted(std::string_view text, const char* colour, int fd) {
  if (!wants_colour(fd)) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", colour, text);
}

}  // namespace

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::string_view(kind) == "dumb") return false;
  if (::isatty(fd) != 1) return false;
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr || parent_has_terminal(fd);
}

bool wants_colour(int fd) {
  const char* none = std::getenv("NO_COLOR");
  return is_terminal(fd) && (none == nullptr || *none == '\0');
}

std::string warning_text(std::string_view text, int fd) {
  return painted(text, "33", fd);
}

std::string error_text(std::string_view text, int fd) { return painted(text, "31", fd); }

}  // namespace longhaul
