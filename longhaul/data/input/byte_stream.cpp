#include "longhaul/data/input/byte_stream.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr size_t kInputBytes = size_t{1} << 18;
/// Bytes after the end of the input that a decoder may read, since decoders read whole
/// words.
constexpr size_t kInputSlack = 64;
constexpr size_t kOutputBytes = size_t{1} << 20;
constexpr char kGzipFirstByte = '\x1F';
/// The largest window of a frame. A limit is needed because a frame can name a window of
/// any size, and the decoder allocates that much memory.
constexpr int kMaxZstdWindowLog = 27;

/// Reads the stored bytes of a file as they are.
class PlainStream : public ByteStream {
 public:
  PlainStream(StoredFile& stored, uint64_t begin)
      : file(stored),
        offset(begin),
        // Many inputs are small files. The buffer is therefore not larger than the file
        // and is not filled with zeros first.
        capacity(static_cast<size_t>(std::min<uint64_t>(kInputBytes, stored.size() + 1))),
        input(std::make_unique_for_overwrite<char[]>(capacity + kInputSlack)) {}
  std::span<const char> next() override { return read_input(); }

 protected:
  /// Reads stored bytes; empty at the end of the file.
  std::span<const char> read_input() {
    const std::span<const char> part = file.read(offset, {input.get(), capacity});
    offset += part.size();
    return part;
  }

  StoredFile& file;
  uint64_t offset;
  size_t capacity;
  std::unique_ptr<char[]> input;
};

class GzipStream final : public PlainStream {
 public:
  explicit GzipStream(StoredFile& stored)
      : PlainStream(stored, 0),
        output(std::make_unique_for_overwrite<char[]>(kOutputBytes)) {}

  std::span<const char> next() override {
    size_t made = 0;
    while (made < kOutputBytes) {
      if (packed.empty()) packed = read_input();
      const bool at_end = packed.empty();
      if (!inside_member) {
        if (at_end) break;
        if (packed.front() != kGzipFirstByte) {
          file.fail("not valid gzip data after the end of the packed text",
                    offset - packed.size());
        }
        decoder.reset();  // consecutive members are one content
        inside_member = true;
      }
      const GzipDecoder::Step step =
          decoder.run(packed, {output.get() + made, kOutputBytes - made});
      packed = packed.subspan(step.taken);
      made += step.made;
      if (!step.problem.empty()) {
        file.fail(fmt::format("not valid gzip data ({})", step.problem),
                  offset - packed.size());
      }
      inside_member = !step.ended;
      if (at_end && inside_member && step.made == 0) {
        file.fail("the gzip data ends early: the file is truncated", offset);
      }
    }
    return {output.get(), made};
  }

 private:
  std::unique_ptr<char[]> output;
  std::span<const char> packed;
  GzipDecoder decoder;
  bool inside_member = true;
};

class ZstdStream final : public PlainStream {
 public:
  explicit ZstdStream(StoredFile& stored)
      : PlainStream(stored, 0),
        output(std::make_unique_for_overwrite<char[]>(kOutputBytes)),
        context(ZSTD_createDCtx()) {
    LH_CHECK(context != nullptr, "data", "zstd does not start");
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
  }
  ~ZstdStream() override { ZSTD_freeDCtx(context); }

  std::span<const char> next() override {
    ZSTD_outBuffer out{output.get(), kOutputBytes, 0};
    while (out.pos < out.size) {
      if (in.pos == in.size && !more_output) {
        const std::span<const char> part = read_input();
        in = {part.data(), part.size(), 0};
        if (part.empty()) {
          if (inside_frame) {
            file.fail("the zstd data ends early: the file is truncated", offset);
          }
          break;
        }
      }
      const size_t before = out.pos;
      const size_t result = ZSTD_decompressStream(context, &out, &in);
      if (ZSTD_isError(result) != 0) fail(result);
      inside_frame = result != 0;
      // After the whole input is read, zstd may still hold output that did not fit.
      more_output = inside_frame && out.pos == out.size && out.pos > before;
    }
    return {output.get(), out.pos};
  }

 private:
  [[noreturn]] void fail(size_t result) const {
    const uint64_t at = offset - (in.size - in.pos);
    const std::string_view reason = ZSTD_getErrorName(result);
    if (reason.find("too much memory") != std::string_view::npos) {
      file.fail("a zstd frame with a window above 128 MiB", at,
                "compress it again without --long, or with --long=27");
    }
    file.fail(fmt::format("not valid zstd data ({})", reason), at);
  }

  std::unique_ptr<char[]> output;
  ZSTD_DCtx* context;
  ZSTD_inBuffer in{nullptr, 0, 0};
  bool inside_frame = true;
  bool more_output = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(StoredFile& file, uint64_t begin) {
  const Compression compression = file.compression();
  LH_CHECK(begin == 0 || compression == Compression::None, "data",
           "a compressed file begins at 0, not {}", begin);
  file.begin(begin);
  if (compression == Compression::Gzip) return std::make_unique<GzipStream>(file);
  if (compression == Compression::Zstd) return std::make_unique<ZstdStream>(file);
  return std::make_unique<PlainStream>(file, begin);
}

}  // namespace longhaul::data
