#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/shards/chunk_filters.h"
#include "longhaul/data/bert/shards/hdf5_handle.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {
namespace {

/// One column of an open HDF5 file. The column is checked in full before anything is
/// allocated for it. Every failure is an InputError with file and column.
class Hdf5Column {
 public:
  /// Checks link, type, rank, layout and filters. Reads no data.
  Hdf5Column(hid_t file, const ColumnForm& form, const fs::path& path);

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }  ///< 1 for a column of rank 1

  /// Returns the bytes that the column takes in the file. First checks that the whole
  /// column is stored and can come from a file of `file_bytes` bytes.
  uint64_t check_storage(uint64_t file_bytes) const;

  /// Reads the whole column in host byte order into rows x width x (bytes of an element)
  /// bytes at `into`.
  void read(char* into) const;

 private:
  struct ChunkGrid;
  [[noreturn]] void fail(const std::string& what) const;
  void open(hid_t file);
  void check_type();
  void check_extents();
  void check_layout();
  void check_filters(hid_t plist);
  ChunkGrid grid() const;
  uint64_t column_size() const;
  uint64_t chunk_size() const;
  void read_chunks(char* into) const;

  const ColumnForm& form_;
  const fs::path& path_;
  Hdf5Handle dataset_;
  int64_t rows_ = 0;
  int64_t width_ = 1;
  bool big_endian_ = false;
  bool chunked_ = false;
  int64_t chunk_rows_ = 0;
  int64_t chunk_width_ = 1;
  std::vector<ChunkFilter> filters_;
};

constexpr uint64_t kMaxChunkBytes = uint64_t{256} << 20;
constexpr int64_t kMaxChunks = int64_t{1} << 22;
/// A deflated byte unpacks to at most 1032 bytes.
constexpr uint64_t kMostInflated = 1032;
/// A chunk that deflate cannot shrink becomes longer by at most this number of bytes.
constexpr uint64_t kChunkOverhead = uint64_t{64} << 10;

int64_t parts_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

std::string filter_name(H5Z_filter_t id, const char* stored) {
  std::string text;
  for (const char* letter = stored; *letter != '\0'; ++letter) {
    text += *letter >= 0x20 && *letter < 0x7F ? *letter : '?';
  }
  return text.empty() ? fmt::format("filter {}", id) : fmt::format("{} ({})", text, id);
}

void swap_words(char* data, uint64_t bytes) {
  for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
    std::swap(data[i], data[i + 3]);
    std::swap(data[i + 1], data[i + 2]);
  }
}

/// The number of chunks along rows and along columns.
struct Hdf5Column::ChunkGrid {
  int64_t down = 0;
  int64_t across = 0;
};

Hdf5Column::Hdf5Column(hid_t file, const ColumnForm& form, const fs::path& path)
    : form_(form), path_(path) {
  open(file);
  check_type();
  check_extents();
  check_layout();
}

void Hdf5Column::fail(const std::string& what) const {
  fail_input("data", "{}: {}: {}", path_.string(), form_.name, what);
}

void Hdf5Column::open(hid_t file) {
  H5L_info_t link{};
  if (H5Lexists(file, form_.name, H5P_DEFAULT) <= 0) {
    fail(
        fmt::format("not in the file ({}); a BERT shard has input_ids, input_mask, "
                    "segment_ids, masked_lm_positions, masked_lm_ids and "
                    "next_sentence_labels",
                    hdf5_reason()));
  }
  if (H5Lget_info(file, form_.name, &link, H5P_DEFAULT) < 0) fail(hdf5_reason());
  if (link.type != H5L_TYPE_HARD) {
    const char* const kind = link.type == H5L_TYPE_SOFT       ? "a soft link"
                             : link.type == H5L_TYPE_EXTERNAL ? "an external link"
                                                              : "a user-defined link";
    fail(fmt::format("{}, which is not followed; store the data in the file itself",
                     kind));
  }
  dataset_ = Hdf5Handle(H5Dopen2(file, form_.name, H5P_DEFAULT), H5Dclose);
  if (!dataset_.valid()) {
    fail(fmt::format("not a dataset that can be opened ({})", hdf5_reason()));
  }
}

void Hdf5Column::check_type() {
  const Hdf5Handle type(H5Dget_type(dataset_.id()), H5Tclose);
  if (!type.valid()) fail(hdf5_reason());
  const bool wide = form_.bytes == 4;
  const bool little = H5Tequal(type.id(), wide ? H5T_STD_I32LE : H5T_STD_I8LE) > 0;
  big_endian_ = !little && H5Tequal(type.id(), wide ? H5T_STD_I32BE : H5T_STD_I8BE) > 0;
  if (little || big_endian_) return;
  const H5T_class_t kind = H5Tget_class(type.id());
  const char* const name = kind == H5T_INTEGER     ? "integers"
                           : kind == H5T_FLOAT     ? "floating-point numbers"
                           : kind == H5T_COMPOUND  ? "a compound"
                           : kind == H5T_STRING    ? "strings"
                           : kind == H5T_ENUM      ? "an enumeration"
                           : kind == H5T_ARRAY     ? "arrays"
                           : kind == H5T_VLEN      ? "sequences of variable length"
                           : kind == H5T_REFERENCE ? "references"
                                                   : "another kind";
  fail(fmt::format("its type is {} of {} bytes, expected signed integers of {} bytes",
                   name, H5Tget_size(type.id()), form_.bytes));
}

void Hdf5Column::check_extents() {
  const Hdf5Handle space(H5Dget_space(dataset_.id()), H5Sclose);
  if (!space.valid()) fail(hdf5_reason());
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (H5Sget_simple_extent_type(space.id()) != H5S_SIMPLE || rank != form_.rank) {
    fail(fmt::format("{} dimensions, expected {}", rank, form_.rank));
  }
  hsize_t extents[2] = {0, 1};
  if (H5Sget_simple_extent_dims(space.id(), extents, nullptr) < 0) fail(hdf5_reason());
  if (extents[0] < 1 || extents[0] > static_cast<hsize_t>(kMaxShardRows) ||
      extents[1] < 1 || extents[1] > static_cast<hsize_t>(kMaxShardLength)) {
    fail(fmt::format("shape [{}, {}], expected 1 to {} rows of 1 to {} values",
                     extents[0], extents[1], kMaxShardRows, kMaxShardLength));
  }
  rows_ = static_cast<int64_t>(extents[0]);
  width_ = static_cast<int64_t>(extents[1]);
}

void Hdf5Column::check_layout() {
  const Hdf5Handle plist(H5Dget_create_plist(dataset_.id()), H5Pclose);
  if (!plist.valid()) fail(hdf5_reason());
  const H5D_layout_t layout = H5Pget_layout(plist.id());
  if (layout == H5D_VIRTUAL) {
    fail("a virtual dataset, whose data lie in other files; store the data in this file");
  }
  if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) {
    fail(fmt::format("layout {} is not read", static_cast<int>(layout)));
  }
  if (H5Pget_external_count(plist.id()) != 0) {
    fail("its data lie in other files (external storage); store the data in this file");
  }
  check_filters(plist.id());
  chunked_ = layout == H5D_CHUNKED;
  if (!chunked_) return;
  hsize_t chunk[2] = {0, 1};
  if (H5Pget_chunk(plist.id(), form_.rank, chunk) != form_.rank) fail(hdf5_reason());
  unsigned options = 0;
  if (H5Pget_chunk_opts(plist.id(), &options) < 0) fail(hdf5_reason());
  if (options != 0) fail("chunks at the edge are stored in another way than the others");
  const uint64_t most = kMaxChunkBytes / static_cast<uint64_t>(form_.bytes);
  if (chunk[0] < 1 || chunk[1] < 1 || chunk[0] > most || chunk[1] > most / chunk[0]) {
    fail(fmt::format(
        "chunks of [{}, {}] values are too large; write chunks of at most {} bytes",
        chunk[0], chunk[1], kMaxChunkBytes));
  }
  chunk_rows_ = static_cast<int64_t>(chunk[0]);
  chunk_width_ = static_cast<int64_t>(chunk[1]);
  const ChunkGrid chunks = grid();
  if (chunks.down > kMaxChunks / chunks.across) {
    fail(fmt::format(
        "{} x {} chunks are too many, at most {} are read; write larger chunks",
        chunks.down, chunks.across, kMaxChunks));
  }
}

void Hdf5Column::check_filters(hid_t plist) {
  const int count = H5Pget_nfilters(plist);
  if (count < 0) fail(hdf5_reason());
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    unsigned config = 0;
    size_t values = 0;
    char name[64] = {};
    const H5Z_filter_t id =
        H5Pget_filter2(plist, static_cast<unsigned>(i), &flags, &values, nullptr,
                       sizeof(name) - 1, name, &config);
    if (id < 0) fail(hdf5_reason());
    const bool known = id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_SHUFFLE ||
                       id == H5Z_FILTER_FLETCHER32;
    const ChunkFilter filter = id == H5Z_FILTER_DEFLATE   ? ChunkFilter::Deflate
                               : id == H5Z_FILTER_SHUFFLE ? ChunkFilter::Shuffle
                                                          : ChunkFilter::Fletcher32;
    if (!known || std::ranges::find(filters_, filter) != filters_.end()) {
      fail(
          fmt::format("{} {}; deflate (gzip), shuffle and fletcher32 are read, each once",
                      filter_name(id, name),
                      known ? "stands twice among its filters" : "is not read"));
    }
    filters_.push_back(filter);
  }
}

Hdf5Column::ChunkGrid Hdf5Column::grid() const {
  return {parts_of(rows_, chunk_rows_), parts_of(width_, chunk_width_)};
}

uint64_t Hdf5Column::column_size() const {
  return static_cast<uint64_t>(rows_) * static_cast<uint64_t>(width_) *
         static_cast<uint64_t>(form_.bytes);
}

uint64_t Hdf5Column::chunk_size() const {
  return static_cast<uint64_t>(chunk_rows_) * static_cast<uint64_t>(chunk_width_) *
         static_cast<uint64_t>(form_.bytes);
}

uint64_t Hdf5Column::check_storage(uint64_t file_bytes) const {
  const uint64_t stored = H5Dget_storage_size(dataset_.id());
  if (stored > file_bytes) {
    fail(fmt::format("takes {} bytes, but the whole file has {}", stored, file_bytes));
  }
  if (!chunked_) {
    if (stored != column_size()) {
      fail(fmt::format("{} bytes are stored, but its shape needs {}", stored,
                       column_size()));
    }
    return stored;
  }
  const ChunkGrid chunks = grid();
  const auto count =
      static_cast<uint64_t>(chunks.down) * static_cast<uint64_t>(chunks.across);
  const bool deflated =
      std::ranges::find(filters_, ChunkFilter::Deflate) != filters_.end();
  const uint64_t most = deflated ? stored * kMostInflated : stored;
  if (chunk_size() > most / count) {
    fail(
        fmt::format("{} bytes are stored, too few for its {} chunks of {} bytes: chunks "
                    "are missing, or the shape is wrong",
                    stored, count, chunk_size()));
  }
  return stored;
}

void Hdf5Column::read(char* into) const {
  if (chunked_) {
    read_chunks(into);
  } else if (H5Dread(dataset_.id(), form_.bytes == 4 ? H5T_NATIVE_INT32 : H5T_NATIVE_INT8,
                     H5S_ALL, H5S_ALL, H5P_DEFAULT, into) < 0) {
    fail(fmt::format("cannot be read ({})", hdf5_reason()));
  }
}

void Hdf5Column::read_chunks(char* into) const {
  const ChunkGrid chunks = grid();
  const auto bytes = static_cast<uint64_t>(form_.bytes);
  std::string chunk;
  for (int64_t i = 0; i < chunks.down * chunks.across; ++i) {
    const int64_t row = i / chunks.across * chunk_rows_;
    const int64_t column = i % chunks.across * chunk_width_;
    const hsize_t offset[2] = {static_cast<hsize_t>(row), static_cast<hsize_t>(column)};
    const auto fail_chunk = [&](const std::string& what) {
      fail(fmt::format("chunk at row {}, column {}: {}", row, column, what));
    };
    hsize_t stored = 0;
    if (H5Dget_chunk_storage_size(dataset_.id(), offset, &stored) < 0 || stored == 0) {
      fail_chunk("not in the file");
    }
    if (stored > chunk_size() + chunk_size() / 1000 + kChunkOverhead) {
      fail_chunk(fmt::format("takes {} bytes, but holds only {} bytes of values", stored,
                             chunk_size()));
    }
    chunk.resize(stored);
    uint32_t skipped = 0;
    if (H5Dread_chunk(dataset_.id(), H5P_DEFAULT, offset, &skipped, chunk.data()) < 0) {
      fail_chunk(hdf5_reason());
    }
    if (skipped != 0) fail_chunk("says that some of its filters were left out");
    const std::string problem =
        unfilter_chunk(filters_, chunk_size(), form_.bytes, chunk);
    if (!problem.empty()) fail_chunk(problem + "; copy the file again");
    if (big_endian_ && bytes == 4) swap_words(chunk.data(), chunk.size());
    const int64_t last = std::min(rows_, row + chunk_rows_);
    const auto run =
        static_cast<uint64_t>(std::min(width_ - column, chunk_width_)) * bytes;
    for (int64_t r = row; r < last; ++r) {
      std::memcpy(into + static_cast<uint64_t>(r * width_ + column) * bytes,
                  chunk.data() + static_cast<uint64_t>((r - row) * chunk_width_) * bytes,
                  run);
    }
  }
}

Hdf5Handle open_file(const fs::path& path) {
  if (!is_seen_file(path)) {
    fail_input("data", "{}: no file, or not a regular one; name an HDF5 shard",
               path.string());
  }
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Sets the plain driver, whatever HDF5_DRIVER says. Locks are off, since cluster file
  // systems may refuse locks. There is no cache for files that external links name.
  H5Pset_fapl_sec2(access.id());
  H5Pset_file_locking(access.id(), false, true);
  H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG);
  H5Pset_elink_file_cache_size(access.id(), 0);
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (!file.valid()) {
    fail_input("data", "{}: not a whole HDF5 file ({}); copy it again", path.string(),
               hdf5_reason());
  }
  return file;
}

/// Returns the number of rows and the lengths of all columns. Throws InputError when the
/// columns disagree.
ShardShape common_shape(const std::vector<Hdf5Column>& columns, const fs::path& path) {
  ShardShape shape;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnForm& form = kColumnForms[i];
    if (i == 0) shape.rows = columns[i].rows();
    if (form.column == ShardColumn::InputIds) shape.seq_len = columns[i].width();
    if (form.column == ShardColumn::MaskedLmPositions) {
      shape.predictions = columns[i].width();
    }
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnForm& form = kColumnForms[i];
    const int64_t width = column_width(shape, form.column);
    if (columns[i].rows() == shape.rows && columns[i].width() == width) continue;
    fail_input("data",
               "{}: {}: shape [{}, {}], but [{}, {}] would fit: input_ids has {} rows of "
               "{}, masked_lm_positions rows of {}; the file is damaged",
               path.string(), form.name, columns[i].rows(), columns[i].width(),
               shape.rows, width, shape.rows, shape.seq_len, shape.predictions);
  }
  const std::string problem = shape_problem(shape);
  if (!problem.empty()) fail_input("data", "{}: {}", path.string(), problem);
  return shape;
}

}  // namespace

BertShard read_shard_unprotected(const fs::path& path) {
  tame_hdf5();
  const Hdf5Handle file = open_file(path);
  std::vector<Hdf5Column> columns;
  columns.reserve(kColumnForms.size());
  for (const ColumnForm& form : kColumnForms) columns.emplace_back(file.id(), form, path);
  const ShardShape shape = common_shape(columns, path);
  const uint64_t file_bytes = fs::file_size(path);
  uint64_t stored = 0;
  for (const Hdf5Column& column : columns) stored += column.check_storage(file_bytes);
  if (stored > file_bytes) {
    fail_input("data", "{}: its columns take {} bytes of a file of {}; they overlap",
               path.string(), stored, file_bytes);
  }
  std::string bytes(shard_bytes(shape), '\0');
  char* into = bytes.data();
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i].read(into);
    into += column_bytes(shape, kColumnForms[i]);
  }
  return {shape, std::move(bytes)};
}

}  // namespace longhaul::data
