#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"

namespace longhaul::data {
namespace {

/// The level that h5py uses for compression="gzip".
constexpr int kPackedDeflateLevel = 4;
/// About how many bytes of input_ids a chunk holds.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

std::string deflated(const std::string& chunk) {
  std::string out(compressBound(static_cast<uLong>(chunk.size())), '\0');
  auto size = static_cast<uLongf>(out.size());
  const int result = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(chunk.data()),
                               static_cast<uLong>(chunk.size()), kPackedDeflateLevel);
  LH_CHECK(result == Z_OK, "data", "zlib refused a chunk of {} bytes", chunk.size());
  out.resize(size);
  out.shrink_to_fit();
  return out;
}

}  // namespace

PackedShard pack_shard(const BertShard& shard) {
  PackedShard packed;
  packed.shape = shard.shape();
  packed.chunk_rows =
      std::clamp<int64_t>(kChunkBytes / (4 * packed.shape.seq_len), 1, packed.shape.rows);
  for (const ColumnForm& form : kColumnForms) {
    const uint64_t row_bytes =
        static_cast<uint64_t>(column_width(packed.shape, form.column)) *
        static_cast<uint64_t>(form.bytes);
    const char* const begin = shard.column(form.column);
    std::vector<std::string>& chunks = packed.columns[static_cast<size_t>(form.column)];
    for (int64_t row = 0; row < packed.shape.rows; row += packed.chunk_rows) {
      const int64_t rows = std::min(packed.chunk_rows, packed.shape.rows - row);
      std::string chunk(static_cast<uint64_t>(packed.chunk_rows) * row_bytes, '\0');
      std::memcpy(chunk.data(), begin + static_cast<uint64_t>(row) * row_bytes,
                  static_cast<uint64_t>(rows) * row_bytes);
      chunks.push_back(deflated(chunk));
    }
  }
  return packed;
}

}  // namespace longhaul::data
