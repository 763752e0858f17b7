#include "apps/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::apps {
namespace {

/// Makes an empty file beside `path`, under a name that nothing had.
fs::path make_neighbour(const fs::path& path) {
  for (int number = 0;; ++number) {
    fs::path neighbour = fmt::format("{}.{}-{}.new", path.string(), ::getpid(), number);
    const Descriptor file(
        ::open(neighbour.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (file.is_open()) return neighbour;
    if (errno == EEXIST) continue;
    fail_input("file", "{}: cannot be made ({})", neighbour.string(),
               std::strerror(errno));
  }
}

}  // namespace

void refuse_existing(const fs::path& path, const std::string& area) {
  if (!fs::exists(fs::symlink_status(path))) return;
  fail_input(area,
             "{} is there already, and nothing is overwritten; "
             "remove it, or give --out another name",
             path.string());
}

void write_new(const fs::path& path, std::string_view text, const std::string& area) {
  refuse_existing(path, area);
  if (path.has_parent_path()) make_directories_durable(path.parent_path());
  const ScratchPath neighbour(make_neighbour(path));
  write_text_durable(neighbour.path(), text);
  if (rename_to_new(neighbour.path(), path)) {
    return sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
  }
  refuse_existing(path, area);
}

}  // namespace longhaul::apps
