#include "longhaul/base/append_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace longhaul {
namespace {

/// Cuts a piece that was written only in part off the end of the file, unless another
/// process has written behind it.
void cut_back(const File& file, uint64_t begin, uint64_t written) {
  if (written == 0) return;
  try {
    if (file.size() != begin + written) return;
  } catch (const Error&) {
    return;
  }
  // If the cut fails too, the next program that opens the file cuts the torn end off.
  static_cast<void>(!::ftruncate(file.fd(), static_cast<off_t>(begin)));
}

}  // namespace

AppendFile::AppendFile(const fs::path& path) : file_(File::open_append(path)) {}

void AppendFile::on_trouble(std::function<void(const std::string& line)> tell) {
  tell_ = std::move(tell);
}

bool AppendFile::append(std::string_view piece) {
  return follow_name() && write_whole(piece);
}

/// Opens a new file of this name if the name no longer stands for the open file: pieces
/// for a file that was renamed (a rotated log) or removed would be lost. Returns false,
/// after counting a lost piece, if the new file cannot be opened.
bool AppendFile::follow_name() {
  struct stat named{};
  struct stat open{};
  const bool there = ::stat(path().c_str(), &named) == 0;
  // If the file server does not answer, nothing is known of the file of this name. The
  // write of the piece will then fail.
  if (!there && errno != ENOENT && errno != ENOTDIR) return true;
  if (::fstat(file_.fd(), &open) != 0) return true;
  if (there && named.st_dev == open.st_dev && named.st_ino == open.st_ino) return true;
  try {
    file_ = File::open_append(path());
  } catch (const Error& error) {
    begin_trouble(error.message());
    return false;
  }
  if (tell_) {
    tell_(
        fmt::format("{} was renamed or removed: a new file of this name is begun, and "
                    "further lines are written there",
                    path().string()));
  }
  return head_.empty() || file_.size() > 0 || write_whole(head_);
}

bool AppendFile::write_whole(std::string_view piece) {
  uint64_t begin = 0;
  try {
    begin = file_.size();
  } catch (const Error& error) {
    begin_trouble(error.what());
    return false;
  }
  uint64_t written = 0;
  while (written < piece.size()) {
    const ssize_t n = ::write(file_.fd(), piece.data() + written, piece.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      cut_back(file_, begin, written);
      begin_trouble(std::strerror(error));
      return false;
    }
    written += static_cast<uint64_t>(n);
  }
  end_trouble();
  return true;
}

void AppendFile::begin_trouble(const std::string& why) {
  ++lost_;
  if (++lost_in_a_row_ > 1 || !tell_) return;
  tell_(
      fmt::format("{} cannot be written: {}; its lines are left out until it can be "
                  "written again; the run goes on",
                  path().string(), why));
}

void AppendFile::end_trouble() {
  const int64_t lost = std::exchange(lost_in_a_row_, 0);
  if (lost == 0 || !tell_) return;
  tell_(fmt::format("{} is written again; {} line{} missing there", path().string(), lost,
                    lost == 1 ? " is" : "s are"));
}

}  // namespace longhaul
