#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/input/record.h"

namespace longhaul::data {

enum class InputFormat : uint8_t { Text, JsonLines, Csv, Parquet, Arrow };
std::string_view format_name(InputFormat format);  ///< "text", "jsonl", "csv", ...
/// Returns the format of a name. InputError lists the names there are.
InputFormat parse_format(std::string_view name);

enum class Compression : uint8_t { None, Gzip, Zstd };

/// The memory that all open readers of Parquet and Arrow may hold together.
class ReaderMemory;
/// Returns null in a build without Arrow.
std::shared_ptr<ReaderMemory> make_reader_memory(uint64_t bytes);

struct InputOptions {
  /// Files, shell patterns (* ? [] and ** for any directories), and directories: those
  /// that Hugging Face `datasets` wrote with save_to_disk, and those with data of one
  /// kind.
  std::vector<std::string> arguments;
  /// The field of JSON lines, and the column of CSV, Parquet and Arrow.
  std::string field = "text";
  /// The user asked for the field: inputs without fields are refused.
  bool field_asked = false;
  /// Without a format the file's name tells it: *.jsonl *.ndjson *.json, *.csv *.tsv,
  /// *.parquet, *.arrow, the endings of text (text_endings()); other names are refused.
  /// *.gz and *.zst around text, JSON lines and CSV are always unpacked.
  std::optional<InputFormat> format;
  /// Separates the columns of CSV; 0 means tab for *.tsv, else a comma. Any other value
  /// is refused where no input is CSV.
  char delimiter = 0;
  /// A longer record is a bad one (TooLong). At most kMaxRecordBytes.
  uint64_t max_record_bytes = kMaxRecordBytes;
  /// The memory that one open reader of Parquet or Arrow may hold: a record batch, or the
  /// pages of a row group with the decoded rows. A file that needs more is refused.
  uint64_t max_batch_bytes = uint64_t{1} << 30;
  /// Shared by the readers of one build; null: no limit for all readers together.
  std::shared_ptr<ReaderMemory> reader_memory;
};

struct InputFile {
  fs::path path;
  uint64_t stored_bytes = 0;  ///< bytes on the disk, compressed
  int64_t modified_ns = 0;
  InputFormat format = InputFormat::Text;
  Compression compression = Compression::None;
};

/// A piece of a file. For JSON lines that are not compressed: the records that START in
/// bytes [begin, end). For Parquet: row groups; for Arrow: record batches. For other
/// files: the whole file.
struct InputRange {
  static constexpr uint64_t kToEnd = UINT64_MAX;
  int file = 0;
  uint64_t begin = 0;
  uint64_t end = kToEnd;  ///< kToEnd: to the end of the file
  bool operator==(const InputRange&) const = default;
};

/// Ranges of files that one worker reads at a time.
struct InputPart {
  std::vector<InputRange> ranges;
  uint64_t stored_bytes = 0;
  bool operator==(const InputPart&) const = default;
};

/// A range that was read to its end.
struct FinishedRange {
  InputRange range;
  /// Bytes that were hashed: all bytes of a file or byte range; for Parquet the bytes of
  /// the columns that were read; for Arrow the bytes of the messages.
  uint64_t stored_bytes = 0;
  std::string hash;     ///< xxh3-128 of these bytes in order, as hash_hex writes it
  int64_t records = 0;  ///< records of next(): bad and empty records count
  int64_t lines = 0;    ///< line ends inside (JSON lines, CSV), or rows (Parquet, Arrow)
};

/// Reads the records of a part one by one, in constant memory. Not thread-safe; many may
/// be open at once.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Reads the next record; false at the end. InputError, with file and place, for a file
  /// that cannot be read, is damaged or truncated, lacks the column, or holds a batch
  /// above max_batch_bytes.
  virtual bool next(RawRecord& record) = 0;
  /// Returns the stored bytes that were read so far, for a progress display. The last
  /// value is the part's stored_bytes or a little more.
  virtual uint64_t bytes_read() const = 0;
  /// Returns the ranges that were read to their end so far, in order.
  virtual const std::vector<FinishedRange>& finished() const = 0;
};

/// The input files of a build. The constructor looks at all files, so that a missing file
/// is not found hours later. No file is held open. Immutable: any thread may call it.
class InputSet {
 public:
  /// InputError for an argument that matches nothing, a directory that does not hold one
  /// kind of data, a file that cannot be opened, a compression that is not read, and an
  /// option that no file has a use for.
  explicit InputSet(InputOptions options);

  const InputOptions& options() const { return options_; }
  /// Returns the files in the order of the arguments. The matches of a pattern and the
  /// files of a directory are sorted by the bytes of their names; the files of a
  /// save_to_disk directory are in the order of its state.json. A file named twice counts
  /// once.
  const std::vector<InputFile>& files() const { return files_; }
  uint64_t stored_bytes() const { return stored_bytes_; }
  /// Says what directories and patterns hold that is no corpus: "2 files passed over as
  /// no corpus: README.md, LICENSE"; empty where there is nothing.
  const std::string& passed_over() const { return passed_over_; }

  /// Cuts all files in order into parts of about `about_bytes` stored bytes: small files
  /// share a part, and a big file that can be split gives many parts. The result depends
  /// on the files, their order and about_bytes only.
  std::vector<InputPart> parts(uint64_t about_bytes) const;

  std::unique_ptr<RecordReader> open(const InputPart& part) const;

  /// Returns about how much memory an open reader of the part holds, as the metadata of
  /// its files say: a record, or for Parquet and Arrow the largest row group or record
  /// batch, at most max_batch_bytes. Opens the Parquet and Arrow files of the part.
  uint64_t reader_bytes(const InputPart& part) const;

  /// Returns a hash of paths, sizes, times of change and options.
  std::string fingerprint() const;

  /// Returns the line ends in the file before `begin`: the line of a record is this
  /// number plus its place.line. For JSON lines and begin > 0 this reads the file up to
  /// `begin`; else it returns 0. The sum of FinishedRange::lines of the ranges before is
  /// the same number.
  int64_t lines_before(int file, uint64_t begin) const;

  /// Returns "corpus/a.jsonl:17", "b.parquet: row 3" or "c.txt"; may call lines_before.
  std::string describe(const RecordPlace& place) const;

 private:
  InputOptions options_;
  std::vector<InputFile> files_;
  std::string passed_over_;
  uint64_t stored_bytes_ = 0;
};

/// True for a directory that Hugging Face datasets wrote with save_to_disk and would open
/// itself.
bool is_saved_dataset(const fs::path& directory);

}  // namespace longhaul::data
