#include "longhaul/data/bert/shards/chunk_filters.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace longhaul::data {
namespace {

std::string inflate_exactly(uint64_t size, std::string& chunk) {
  if (size > std::numeric_limits<uInt>::max() ||
      chunk.size() > std::numeric_limits<uInt>::max()) {
    return "the chunk is larger than 4 GiB";
  }
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return "zlib could not start";
  stream.next_in = reinterpret_cast<Bytef*>(chunk.data());
  stream.avail_in = static_cast<uInt>(chunk.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(size);
  const int result = inflate(&stream, Z_FINISH);
  const uint64_t made = stream.total_out;
  const std::string said = stream.msg == nullptr ? "" : stream.msg;
  inflateEnd(&stream);
  if (result == Z_STREAM_END && made == size) {
    chunk = std::move(out);
    return {};
  }
  if (result == Z_STREAM_END || (result == Z_BUF_ERROR && made == size)) {
    return fmt::format("its deflate stream holds {} {} bytes, but the chunk has {}",
                       result == Z_STREAM_END ? "only" : "more than", made, size);
  }
  if (result == Z_BUF_ERROR || result == Z_OK) return "its deflate stream is cut off";
  return fmt::format("its deflate stream is damaged ({})", said.empty() ? "zlib" : said);
}

/// Undoes the shuffle filter. The filter stores the first bytes of all elements, then the
/// second bytes and so on, and at the end the bytes that make no whole element.
void unshuffle(int element, std::string& chunk) {
  const auto width = static_cast<size_t>(element);
  const size_t count = chunk.size() / width;
  if (width == 1 || count <= 1) return;
  std::string out(chunk);
  for (size_t byte = 0; byte < width; ++byte) {
    const char* const from = chunk.data() + byte * count;
    for (size_t i = 0; i < count; ++i) out[i * width + byte] = from[i];
  }
  chunk = std::move(out);
}

uint32_t byte_at(const std::string& text, size_t place) {
  return static_cast<unsigned char>(text[place]);
}

std::string check_fletcher32(std::string& chunk) {
  if (chunk.size() < 4) return "too short for its checksum";
  const size_t size = chunk.size() - 4;
  const uint32_t stored = byte_at(chunk, size) | byte_at(chunk, size + 1) << 8 |
                          byte_at(chunk, size + 2) << 16 | byte_at(chunk, size + 3) << 24;
  chunk.resize(size);
  const uint32_t found = hdf5_fletcher32(chunk.data(), size);
  if (stored == found) return {};
  return fmt::format("its checksum is {:08x}, but the data gives {:08x}", stored, found);
}

}  // namespace

// The checksum is made of sums of 16-bit words, high byte first, modulo 65535. An odd
// byte at the end counts as a high byte.
uint32_t hdf5_fletcher32(const char* data, size_t size) {
  uint32_t low = 0;
  uint32_t high = 0;
  const auto word = [&](size_t place) {
    const uint32_t second =
        place + 1 < size ? static_cast<unsigned char>(data[place + 1]) : 0U;
    return static_cast<uint32_t>(static_cast<unsigned char>(data[place])) << 8 | second;
  };
  // The number of words between two reductions that cannot overflow a sum.
  constexpr size_t kWords = 360;
  for (size_t place = 0; place < size;) {
    const size_t end = std::min(size, place + 2 * kWords);
    for (; place < end; place += 2) {
      low += word(place);
      high += low;
    }
    low = (low & 0xFFFF) + (low >> 16);
    high = (high & 0xFFFF) + (high >> 16);
  }
  low = (low & 0xFFFF) + (low >> 16);
  high = (high & 0xFFFF) + (high >> 16);
  return high << 16 | low;
}

std::string unfilter_chunk(const std::vector<ChunkFilter>& filters, uint64_t size,
                           int element, std::string& chunk) {
  for (auto filter = filters.rbegin(); filter != filters.rend(); ++filter) {
    std::string problem;
    switch (*filter) {
      case ChunkFilter::Fletcher32:
        problem = check_fletcher32(chunk);
        break;
      case ChunkFilter::Shuffle:
        unshuffle(element, chunk);
        break;
      case ChunkFilter::Deflate: {
        // A checksum that was added before deflating lies inside the stream.
        const bool checked_first = std::find(filter + 1, filters.rend(),
                                             ChunkFilter::Fletcher32) != filters.rend();
        problem = inflate_exactly(size + (checked_first ? 4 : 0), chunk);
        break;
      }
    }
    if (!problem.empty()) return problem;
  }
  if (chunk.size() != size) {
    return fmt::format("it holds {} bytes, expected {}", chunk.size(), size);
  }
  return {};
}

}  // namespace longhaul::data
