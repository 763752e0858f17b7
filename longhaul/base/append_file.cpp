#include "longhaul/base/append_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace longhaul {
namespace {

/// Takes the beginning of a piece away again, unless another process has written since.
void cut_back(const File& file, uint64_t begin, uint64_t written) {
  if (written == 0) return;
  try {
    if (file.size() != begin + written) return;
  } catch (const Error&) {
    return;
  }
  // Where even this fails, who opens the file next cuts its torn end off.
  static_cast<void>(!::ftruncate(file.fd(), static_cast<off_t>(begin)));
}

}  // namespace

AppendFile::AppendFile(const fs::path& path) : file_(File::open_append(path)) {}

void AppendFile::on_trouble(std::function<void(const std::string& line)> tell) {
  tell_ = std::move(tell);
}

bool AppendFile::append(std::string_view piece) {
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
      fmt::format("{} cannot be written: {}; what belongs there is left out until it "
                  "can; the run goes on",
                  path().string(), why));
}

void AppendFile::end_trouble() {
  const int64_t lost = std::exchange(lost_in_a_row_, 0);
  if (lost == 0 || !tell_) return;
  tell_(fmt::format("{} is written again; {} line{} missing there", path().string(), lost,
                    lost == 1 ? " is" : "s are"));
}

}  // namespace longhaul
