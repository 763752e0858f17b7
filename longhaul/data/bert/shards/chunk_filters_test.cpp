#include "longhaul/data/bert/shards/chunk_filters.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace longhaul::data {
namespace {

const std::vector<ChunkFilter> kDeflate = {ChunkFilter::Deflate};

std::string deflated(const std::string& text) {
  std::string out(compressBound(text.size()), '\0');
  uLongf size = out.size();
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(text.data()), text.size(), 6);
  out.resize(size);
  return out;
}

std::string sample() {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>(i * i / 7);
  return text;
}

TEST(ChunkFilters, DeflateGivesExactlyTheChunk) {
  std::string chunk = deflated(sample());
  EXPECT_EQ(unfilter_chunk(kDeflate, 4000, 4, chunk), "");
  EXPECT_EQ(chunk, sample());
}

TEST(ChunkFilters, ADeflateStreamOfAnotherLengthIsRefused) {
  std::string longer = deflated(sample());
  EXPECT_EQ(unfilter_chunk(kDeflate, 3999, 4, longer),
            "its deflate stream holds more than 3999 bytes, but the chunk has 3999");
  std::string shorter = deflated(sample());
  EXPECT_EQ(unfilter_chunk(kDeflate, 4001, 4, shorter),
            "its deflate stream holds only 4000 bytes, but the chunk has 4001");
}

TEST(ChunkFilters, EveryTruncationAndEveryFlippedBitIsFound) {
  const std::string whole = deflated(sample());
  for (size_t size = 0; size < whole.size(); ++size) {
    std::string cut = whole.substr(0, size);
    EXPECT_NE(unfilter_chunk(kDeflate, 4000, 4, cut), "") << size;
  }
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    // An inflater ignores some bits of the stream's header.
    if (unfilter_chunk(kDeflate, 4000, 4, flipped).empty()) {
      EXPECT_EQ(flipped, sample());
    }
  }
}

TEST(ChunkFilters, ShuffleIsUndoneAndTheRestAtTheEndStays) {
  std::string chunk = "a1b2c3z";  // two elements of three bytes, one byte more
  EXPECT_EQ(unfilter_chunk({ChunkFilter::Shuffle}, 7, 3, chunk), "");
  EXPECT_EQ(chunk, "abc123z");
}

TEST(ChunkFilters, AWrongFletcher32IsFound) {
  std::string chunk = sample();
  const uint32_t sum = hdf5_fletcher32(chunk.data(), chunk.size());
  for (int shift = 0; shift < 32; shift += 8) {
    chunk += static_cast<char>(sum >> shift & 0xFF);
  }
  std::string good = chunk;
  EXPECT_EQ(unfilter_chunk({ChunkFilter::Fletcher32}, 4000, 4, good), "");
  EXPECT_EQ(good, sample());
  chunk[17] = static_cast<char>(chunk[17] ^ 4);
  EXPECT_NE(
      unfilter_chunk({ChunkFilter::Fletcher32}, 4000, 4, chunk).find("its checksum is"),
      std::string::npos);
}

}  // namespace
}  // namespace longhaul::data
