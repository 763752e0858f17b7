#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::data {

/// The HDF5 filters that a shard may have.
enum class ChunkFilter : uint8_t { Shuffle, Deflate, Fletcher32 };

/// Undoes the filters of a chunk, the last filter first, and leaves exactly `size` bytes
/// in `chunk`. `element` is the size of one value (for shuffle). Returns an empty string,
/// or a message for a wrong checksum or a deflate stream that is damaged, truncated, or
/// longer or shorter than the chunk. Allocates `size` bytes and no more.
std::string unfilter_chunk(const std::vector<ChunkFilter>& filters, uint64_t size,
                           int element, std::string& chunk);

/// Returns the checksum of HDF5's fletcher32 filter.
uint32_t hdf5_fletcher32(const char* data, size_t size);

}  // namespace longhaul::data
