#include "longhaul/monitor/line_tail.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kBlock = size_t{4} << 20;
static_assert(kBlock > LineTail::kLongestLine);

}  // namespace

bool LineTail::is_another(uint64_t device, uint64_t inode, uint64_t size) const {
  // A writer that opens the file again cuts a torn line off, but never a whole line. So a
  // file that ends before `offset_` is another file.
  return known_ && (device != device_ || inode != inode_ || size < offset_);
}

LineTail::Found LineTail::read(const OnLine& line, const OnRestart& restart) {
  struct stat held{};
  if (::stat(path_.c_str(), &held) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Found::Nothing;
    fail_input("run directory", "{}: {}", path_.string(), std::strerror(errno));
  }
  // Reading a pipe or a device could block, or never end.
  if (!S_ISREG(held.st_mode)) {
    fail_input("run directory", "{} is no regular file", path_.string());
  }
  const auto size = static_cast<uint64_t>(held.st_size);
  const bool another = is_another(held.st_dev, held.st_ino, size);
  if (another) {
    offset_ = 0;
    skipping_ = false;
    too_long_ = 0;
    restart();
  }
  known_ = true;
  device_ = held.st_dev;
  inode_ = held.st_ino;
  if (size == offset_) return another ? Found::Restarted : Found::Nothing;
  const File file = File::open_read(path_);
  buffer_.resize(kBlock + kPadding);
  const uint64_t before = offset_;
  // Reads only up to the size that the file has now, since a file may grow faster than it
  // is read.
  while (offset_ < size) {
    const size_t wanted = std::min<uint64_t>(kBlock, size - offset_);
    // Fewer bytes are there if a writer that opened the file again has just cut its torn
    // line off.
    const ssize_t got =
        ::pread(file.fd(), buffer_.data(), wanted, static_cast<off_t>(offset_));
    if (got <= 0) break;
    const uint64_t at = offset_;
    take_block({buffer_.data(), static_cast<size_t>(got)}, line);
    if (offset_ == at) break;  // a line that has not ended
  }
  if (another) return Found::Restarted;
  return offset_ > before ? Found::Lines : Found::Nothing;
}

void LineTail::take_block(std::string_view fresh, const OnLine& line) {
  size_t begin = 0;
  while (begin < fresh.size()) {
    const size_t end = fresh.find('\n', begin);
    if (end == std::string_view::npos) break;
    if (skipping_ || end - begin > kLongestLine) {
      ++too_long_;
      skipping_ = false;
    } else {
      line(fresh.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  if (fresh.size() - begin > kLongestLine) {
    skipping_ = true;
    begin = fresh.size();
  }
  offset_ += begin;
}

}  // namespace longhaul::monitor
