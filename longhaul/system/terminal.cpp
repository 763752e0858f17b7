#include "longhaul/system/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "longhaul/base/error.h"

namespace longhaul::system {
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

/// Returns the word as it is if a shell leaves it alone, else in single quotes.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=+./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
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

std::string printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // In UTF-8 the second set of control characters is C2 80 to C2 9F.
    const bool second_set = c == 0xc2 && i + 1 < text.size() &&
                            static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\r') {
      line += "\\r";
    } else if (second_set) {
      line += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if ((c < 0x20 && c != '\t') || c == 0x7f) {
      line += fmt::format("\\x{:02x}", c);
    } else {
      line += text[i];
    }
  }
  return line;
}

std::string warning_text(std::string_view text, int fd) {
  return painted(text, "33", fd);
}

std::string error_text(std::string_view text, int fd) { return painted(text, "31", fd); }

std::string describe_command(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += quoted(word);
  }
  return text;
}

bool has_control_characters(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string shell_word(const std::string& word) {
  if (has_control_characters(word)) {
    fail_input("command",
               "'{}' has a line break or another control character; choose another name",
               word.substr(0, 200));
  }
  return quoted(word);
}

}  // namespace longhaul::system
