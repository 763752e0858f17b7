#include "longhaul/base/missing_path.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <vector>

#include "longhaul/base/text.h"

namespace longhaul {
namespace {

constexpr size_t kMostNeighbours = 1000;

/// Returns whether a path begins as the address of an object does: "s3://", of which
/// fs::path may have made "s3:/".
bool names_object(const fs::path& path) { return path.native().starts_with("s3:/"); }

/// The beginnings of the names of models that have no organisation on the model hub.
constexpr std::string_view kBareHubNames[] = {"gpt2",        "distilgpt2", "bert-",
                                              "distilbert-", "roberta-",   "albert-",
                                              "xlnet-",      "xlm-",       "t5-"};

/// Returns whether a path may be a name on the model hub: ORGANISATION/NAME, if no
/// directory here has the name of the organisation, or the name of a model without an
/// organisation.
bool is_hub_name(const fs::path& path) {
  const std::string text = path.string();
  const size_t slash = text.find('/');
  const bool bare = std::ranges::any_of(
      kBareHubNames, [&](std::string_view name) { return text.starts_with(name); });
  if (slash == std::string::npos && bare) return true;
  if (slash == std::string::npos || slash == 0 || slash + 1 >= text.size()) return false;
  const bool plain = std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  return plain && text.find('/', slash + 1) == std::string::npos && text[0] != '.' &&
         !is_seen(path.parent_path());
}

/// Returns the path with its first missing part replaced by a neighbour of nearly this
/// name, if that path exists.
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

/// What a shell makes of a path, and whether that needed a variable that is not set.
struct Expanded {
  std::string path;
  std::string unset;
};

/// Returns where "~" or "~user" at the beginning leads; nothing if there is no such user.
std::optional<std::string> home_of(const std::string& user) {
  const char* const own = std::getenv("HOME");
  if (user.empty() && own != nullptr) return own;
  const passwd* const entry =
      user.empty() ? ::getpwuid(::geteuid()) : ::getpwnam(user.c_str());
  return entry == nullptr ? std::nullopt : std::optional<std::string>(entry->pw_dir);
}

void expand_variables(const std::string& text, Expanded& out) {
  for (size_t at = 0; at < text.size(); ++at) {
    const bool braces = text.compare(at, 2, "${") == 0;
    const size_t begin = at + (braces ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && is_word_character(text[end])) ++end;
    const bool is_name = text[at] == '$' && end > begin &&
                         std::isdigit(static_cast<unsigned char>(text[begin])) == 0 &&
                         (!braces || (end < text.size() && text[end] == '}'));
    if (!is_name) {
      out.path += text[at];
      continue;
    }
    const std::string name = text.substr(begin, end - begin);
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) out.unset = name;
    out.path += value == nullptr ? "" : value;
    at = braces ? end : end - 1;
  }
}

/// Returns what a shell makes of the path; nothing if a shell would replace nothing in
/// it.
std::optional<Expanded> expand(const std::string& path) {
  Expanded out;
  std::string rest = path;
  if (path.starts_with('~')) {
    const size_t slash = std::min(path.find('/'), path.size());
    const auto home = home_of(path.substr(1, slash - 1));
    if (home) {
      out.path = *home;
      rest = path.substr(slash);
    }
  }
  expand_variables(rest, out);
  return out.path == path ? std::nullopt : std::optional(out);
}

/// Returns the part of a path up to the last of its names in which a shell replaces
/// something.
fs::path replaced_part(const fs::path& path) {
  fs::path part;
  fs::path last;
  for (const fs::path& name : path) {
    part /= name;
    if (name.string().find('$') != std::string::npos || last.empty()) last = part;
  }
  return last;
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

std::string unexpanded(const fs::path& path) {
  const auto meant = expand(path.string());
  if (!meant || is_seen(replaced_part(path))) return {};
  std::string text =
      "only a shell replaces ~ and $NAME, and not in quotes, in a file or behind = of an "
      "option; longhaul takes the path as it stands";
  if (!meant->unset.empty()) {
    return fmt::format("{}; {} is not set here: write the whole path", text,
                       meant->unset);
  }
  return fmt::format("{}; write {}", text, meant->path);
}

std::string as_address(const fs::path& path) {
  // A directory may really be named "s3:". The program still takes "s3:" for the
  // beginning of an address.
  if (names_object(path)) {
    return "it is the address of an object, which has no use here: give a path of a "
           "local or shared file system (docs/objects.md)";
  }
  const std::string text = path.string();
  const size_t scheme = text.find("://");
  const bool named = scheme != std::string::npos && scheme > 1 &&
                     std::ranges::all_of(text.substr(0, scheme), [](unsigned char c) {
                       return std::isalnum(c) != 0;
                     });
  if (!named || is_seen(*path.begin())) return {};
  return "it reads like an address, and longhaul opens no addresses but those of "
         "objects, s3://BUCKET/KEY: give a path of a mounted file system, and copy from "
         "or to the address by other means (docs/offline.md)";
}

std::string missing_path(const fs::path& path) {
  if (const std::string link = dangling_link(path); !link.empty()) {
    return path.string() + ": " + link;
  }
  std::string missing = path.string() + ": no such file or directory";
  if (names_object(path)) return path.string() + ": " + as_address(path);
  if (path.string().find(":/") != std::string::npos) {
    return missing +
           "; it reads like an address, and longhaul opens those of s3:// alone: "
           "download it first and give the path here (docs/offline.md)";
  }
  if (const std::string meant = unexpanded(path); !meant.empty()) {
    return fmt::format("{}; {}", missing, meant);
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
