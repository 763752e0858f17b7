#include "longhaul/base/missing_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/text.h"

namespace longhaul {
namespace {

constexpr size_t kMostNeighbours = 1000;

/// ORGANISATION/NAME, where no such organisation is a directory here.
bool is_hub_name(const fs::path& path) {
  const std::string text = path.string();
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 >= text.size()) return false;
  const bool plain = std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  std::error_code error;
  return plain && text.find('/', slash + 1) == std::string::npos && text[0] != '.' &&
         !fs::exists(path.parent_path(), error);
}

/// The path with its first missing part replaced by a neighbour of nearly this name, if
/// that exists.
std::optional<fs::path> nearly_this(const fs::path& path) {
  std::error_code error;
  fs::path there;
  for (auto part = path.begin(); part != path.end(); ++part) {
    if (fs::exists(there / *part, error)) {
      there /= *part;
      continue;
    }
    std::vector<std::string> neighbours;
    for (fs::directory_iterator it(there.empty() ? "." : there, error), end;
         !error && it != end && neighbours.size() < kMostNeighbours;
         it.increment(error)) {
      neighbours.push_back(it->path().filename().string());
    }
    const auto near = nearest_name(part->string(), neighbours);
    if (!near) return std::nullopt;
    fs::path meant = there / *near;
    while (++part != path.end()) meant /= *part;
    return fs::exists(meant, error) ? std::optional(meant) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::string dangling_link(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error)) || fs::exists(path, error)) {
    return {};
  }
  return fmt::format("a link to {}, where nothing is",
                     fs::read_symlink(path, error).string());
}

std::string missing_path(const fs::path& path) {
  if (const std::string link = dangling_link(path); !link.empty()) {
    return path.string() + ": " + link;
  }
  const std::string missing = path.string() + ": no such file or directory";
  if (path.string().find(":/") != std::string::npos) {
    return missing +
           "; it reads like an address, and longhaul fetches nothing: download it first "
           "and give the path here (docs/offline.md)";
  }
  if (const auto near = nearly_this(path)) {
    return fmt::format("{}; did you mean {}?", missing, near->string());
  }
  if (is_hub_name(path)) {
    return missing +
           "; if it is a name on a model hub: longhaul fetches nothing, download it "
           "first and give its directory here (docs/offline.md)";
  }
  return missing;
}

}  // namespace longhaul
