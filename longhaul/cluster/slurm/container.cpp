#include "longhaul/cluster/slurm/container.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/named_paths.h"
#include "longhaul/objects/address.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

/// Directories that an image has for itself: a mount over one of them would take the
/// image's own programs and libraries away.
constexpr std::array<std::string_view, 19> kOfImages = {
    "/",      "/bin",   "/boot",      "/dev",  "/dev/shm", "/etc",  "/lib",
    "/lib32", "/lib64", "/opt",       "/proc", "/run",     "/sbin", "/sys",
    "/tmp",   "/usr",   "/usr/local", "/var",  "/var/tmp"};

bool belongs_to_image(const fs::path& path) {
  return std::ranges::find(kOfImages, std::string_view(path.native())) != kOfImages.end();
}

fs::path absolute_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// Returns whether `path` is `parent` or lies below it.
bool is_below(const fs::path& path, const fs::path& parent) {
  const auto [end, rest] = std::ranges::mismatch(parent, path);
  return end == parent.end();
}

/// Returns the part of a pattern before its first name with a wildcard.
fs::path fixed_part(const fs::path& pattern) {
  fs::path fixed;
  for (const fs::path& name : pattern) {
    if (has_wildcard(name.native())) break;
    fixed /= name;
  }
  return fixed;
}

fs::path nearest_existing(fs::path path) {
  while (path.has_relative_path() && !is_seen(path)) path = path.parent_path();
  return path;
}

/// Adds what a path leads to through links; adds nothing if neither it nor a directory
/// above it is a link.
void add_target(const fs::path& path, std::vector<fs::path>& found) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error && real != path) found.push_back(real);
}

void add_with_links(const fs::path& named, std::vector<fs::path>& found) {
  const fs::path path = nearest_existing(absolute_path(named));
  if (belongs_to_image(path)) return;
  found.push_back(path);
  add_target(path, found);
  // In the cache of a model hub, the files are links to another directory of the cache.
  for (const fs::path& inner : paths_in(path)) {
    std::error_code gone;
    if (fs::is_symlink(inner, gone)) add_target(inner, found);
  }
}

void check_for_list(const fs::path& path) {
  const std::string& text = path.native();
  if (text.find_first_of(",:") == std::string::npos &&
      !system::has_control_characters(text)) {
    return;
  }
  fail_input("submit",
             "'{}' cannot be mounted into a container: pyxis separates mounts by commas "
             "and colons; give the path another name, or a link without these characters",
             text);
}

}  // namespace

std::vector<std::string> container_words(const Container& container) {
  if (container.image.empty()) return {};
  std::vector<std::string> words = {"--container-image=" + container.image};
  std::vector<std::string> mounts;
  for (const fs::path& path : container.read_only) {
    mounts.push_back(fmt::format("{0}:{0}:ro", path.native()));
  }
  for (const fs::path& path : container.mounts) {
    mounts.push_back(fmt::format("{0}:{0}", path.native()));
  }
  const auto add = [&](const char* option, const std::vector<std::string>& list) {
    if (!list.empty())
      words.push_back(fmt::format("{}={}", option, fmt::join(list, ",")));
  };
  add("--container-mounts", mounts);
  add("--container-env", container.variables);
  if (!container.directory.empty()) {
    words.push_back("--container-workdir=" + container.directory.native());
  }
  return words;
}

std::vector<fs::path> paths_of_run(const RunConfig& config) {
  std::vector<fs::path> paths;
  for (const NamedPath& named : named_paths(config)) {
    if (named.use == PathUse::OfNodes || objects::is_address(named.path)) continue;
    paths.push_back(named.may_be_pattern ? fixed_part(named.path) : named.path);
  }
  std::erase(paths, fs::path());
  return paths;
}

std::vector<fs::path> paths_of_words(const std::vector<std::string>& words) {
  std::vector<fs::path> paths;
  for (const std::string& word : words) {
    const size_t sign = word.find("=/");
    const bool behind = !word.starts_with('/') && sign != std::string::npos;
    const fs::path path = fixed_part(behind ? word.substr(sign + 1) : word);
    if (path.is_absolute() || (!path.empty() && is_seen(path))) paths.push_back(path);
  }
  return paths;
}

fs::path tree_of_program(const fs::path& program) {
  fs::path tree = absolute_path(program).parent_path();  // bin
  if (tree.filename() == "bin") tree = tree.parent_path();
  // A wheel's libraries lie among the other packages: env/lib/python3.x/site-packages, or
  // the directory of `pip install --target`.
  if (tree.filename() == "longhaul_train") {
    tree = tree.parent_path();
    if (tree.filename() == "site-packages" || tree.filename() == "dist-packages") {
      for (int level = 0; level < 3; ++level) tree = tree.parent_path();
    }
  }
  if (!belongs_to_image(tree)) return tree;
  fail_input(
      "submit",
      "{} lies in {}, which every image has itself; install longhaul into a directory of "
      "its own, or name the image's own program with --container-program",
      program.string(), tree.string());
}

std::vector<fs::path> environments_in_use(const fs::path& maps) {
  std::vector<fs::path> found;
  std::ifstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t path = line.find('/');
    const size_t python = line.find("/lib/python3");
    if (path == std::string::npos || python == std::string::npos || python <= path) {
      continue;
    }
    const fs::path environment = line.substr(path, python - path);
    if (!belongs_to_image(environment)) found.push_back(environment);
  }
  return found;
}

std::vector<fs::path> mounts_of(const std::vector<fs::path>& paths,
                                const std::vector<fs::path>& others) {
  std::vector<fs::path> found;
  for (const fs::path& path : paths) add_with_links(path, found);
  std::ranges::sort(found);
  std::vector<fs::path> mounts;
  for (const fs::path& path : found) {
    if (belongs_to_image(path)) continue;
    const auto holds = [&](const fs::path& mount) { return is_below(path, mount); };
    if (std::ranges::any_of(mounts, holds) || std::ranges::any_of(others, holds)) {
      continue;
    }
    check_for_list(path);
    mounts.push_back(path);
  }
  return mounts;
}

}  // namespace longhaul::cluster
