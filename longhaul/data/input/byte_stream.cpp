#include "longhaul/data/input/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::data {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
constexpr size_t kOutputBytes = size_t{1} << 20;

bool is_gzip_name(const fs::path& path) { return path.extension() == ".gz"; }

}  // namespace

struct ByteStream::State {
  explicit State(const fs::path& path)
      : file(File::open_read(path)),
        size(file.size()),
        gzip(is_gzip_name(path)),
        input(kInputBytes) {
    if (fs::is_directory(path))
      throw InputError("data", path.string() + ": is a directory");
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!gzip) return;
    output.resize(kOutputBytes);
    // 16: the gzip format and no other.
    LH_CHECK(inflateInit2(&inflater, 15 + 16) == Z_OK, "data", "zlib does not start");
  }
  ~State() {
    if (gzip) inflateEnd(&inflater);
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(
        "data",
        fmt::format("{}: {} at byte {} of {}; copy or download the file again",
                    file.path().string(), what, offset - inflater.avail_in, size));
  }

  /// Stored bytes; empty at the end of the file.
  std::span<const char> read_input() {
    const auto count =
        static_cast<size_t>(std::min<uint64_t>(kInputBytes, size - offset));
    const std::span part = std::span(input).first(count);
    if (count == 0) return {};
    file.read_at(offset, std::as_writable_bytes(part));
    hasher.update(std::as_bytes(part));
    offset += count;
    return part;
  }

  bool refill() {
    const std::span<const char> part = read_input();
    inflater.next_in = reinterpret_cast<Bytef*>(input.data());
    inflater.avail_in = static_cast<uInt>(part.size());
    return !part.empty();
  }

  std::span<const char> next_inflated();

  File file;
  uint64_t size;
  bool gzip;
  std::vector<char> input;
  std::vector<char> output;
  uint64_t offset = 0;
  BlockHasher hasher;
  z_stream inflater{};
  bool inside_member = true;
};

std::span<const char> ByteStream::State::next_inflated() {
  inflater.next_out = reinterpret_cast<Bytef*>(output.data());
  inflater.avail_out = static_cast<uInt>(output.size());
  while (inflater.avail_out > 0) {
    if (inflater.avail_in == 0 && !refill()) {
      if (inside_member) fail("the gzip data ends early: the file is truncated");
      break;
    }
    if (!inside_member) {  // several members one after another are one file
      inflateReset(&inflater);
      inside_member = true;
    }
    const int result = inflate(&inflater, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inside_member = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(fmt::format("not valid gzip data ({})",
                       inflater.msg != nullptr ? inflater.msg : "unknown"));
    }
  }
  return std::span(output).first(output.size() - inflater.avail_out);
}

ByteStream::ByteStream(const fs::path& path) : state_(std::make_unique<State>(path)) {}
ByteStream::~ByteStream() = default;

std::span<const char> ByteStream::next() {
  return state_->gzip ? state_->next_inflated() : state_->read_input();
}
uint64_t ByteStream::bytes_read() const { return state_->offset; }
std::string ByteStream::hash() { return combine_hashes(state_->hasher.finish()); }

}  // namespace longhaul::data
