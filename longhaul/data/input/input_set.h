#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/input/record.h"
#include "longhaul/data/places/stored_object.h"

namespace longhaul::data {

enum class InputFormat : uint8_t { Text, JsonLines, Csv, Parquet, Arrow };
std::string_view format_name(InputFormat format);  ///< "text", "jsonl", "csv", ...
/// Returns the format of a name. For an unknown name it throws InputError that lists the
/// known names.
InputFormat parse_format(std::string_view name);

enum class Compression : uint8_t { None, Gzip, Zstd };

/// Memory that the open readers of Parquet and Arrow files may hold.
class LimitedPool;
/// Makes the shared memory of several readers, limited to `bytes`. Returns null in a
/// build without Arrow.
std::shared_ptr<LimitedPool> make_reader_memory(uint64_t bytes);

struct InputOptions {
  /// Files, shell patterns (* ? [] and ** for any directories), and directories. A
  /// directory was written by Hugging Face `datasets` with save_to_disk, or holds data of
  /// one kind. Each may be an address of objects ("s3://bucket/dir/*.jsonl").
  std::vector<std::string> arguments;
  /// The field of JSON lines, and the column of CSV, Parquet and Arrow.
  std::string field = "text";
  /// True when the user named the field, so that inputs without fields are refused.
  bool field_asked = false;
  /// True where a record is a chat. Then parse_record gives the whole record as the text
  /// of a JSON object, and `field` has no meaning.
  bool chats = false;
  /// The format of all files. Without a format each file's name decides: *.jsonl *.ndjson
  /// *.json, *.csv *.tsv, *.parquet, *.arrow, or the endings of text (text_endings()).
  /// Other names are refused. Text, JSON lines and CSV in *.gz and *.zst files are always
  /// unpacked.
  std::optional<InputFormat> format;
  /// Separates the columns of CSV; 0 means tab for *.tsv, else a comma. Any other value
  /// is refused if no input is CSV.
  char delimiter = 0;
  /// A longer record is a bad record (TooLong). The value may be at most kMaxRecordBytes.
  uint64_t max_record_bytes = kMaxRecordBytes;
  /// The memory that one open reader of Parquet or Arrow files may hold: a record batch,
  /// or the pages of a row group with the decoded rows. A file that needs more memory is
  /// refused.
  uint64_t max_batch_bytes = uint64_t{1} << 30;
  /// The memory that the readers of one build share; null: no limit for all readers
  /// together.
  std::shared_ptr<LimitedPool> reader_memory;
  /// The object store from which addresses are read; may be null if no argument is an
  /// address.
  std::shared_ptr<objects::ObjectStore> objects;
};

struct InputFile {
  fs::path path;              ///< of an object: its address
  uint64_t stored_bytes = 0;  ///< bytes on the disk or in the store, compressed
  int64_t modified_ns = 0;    ///< 0 for an object
  InputFormat format = InputFormat::Text;
  Compression compression = Compression::None;
  std::shared_ptr<const StoredObject> object = {};  ///< null for a file of the disk
  /// Returns the version of an object, and the time of change of a file of the disk.
  std::string version() const;
};

/// A piece of a file. In JSON lines that are not compressed, a range is the records that
/// START in bytes [begin, end). In Parquet files a range is row groups [begin, end), and
/// in Arrow files record batches [begin, end). In other files a range is the whole file.
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
  /// Number of bytes that were hashed: all bytes of a file or byte range, for Parquet the
  /// bytes of the columns that were read, for Arrow the bytes of the messages.
  uint64_t stored_bytes = 0;
  std::string hash;  ///< xxh3-128 of these bytes in order, as hash_hex writes it
  /// Records that next() gave, bad and empty records included.
  int64_t records = 0;
  int64_t lines = 0;  ///< line ends inside (JSON lines, CSV), or rows (Parquet, Arrow)
};

/// Reads the records of a part one by one, in constant memory. Not thread-safe, but many
/// readers may be open at once.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Reads the next record; false at the end. Throws InputError, with file and line, for
  /// a file that cannot be read, is damaged or truncated, lacks the column, or holds a
  /// batch above max_batch_bytes. At the end of a range of an object it also throws
  /// InputError if the object has been replaced while it was read.
  virtual bool next(RawRecord& record) = 0;
  /// Returns the stored bytes that were read so far, for a progress display. The last
  /// value is the part's stored_bytes or a little more.
  virtual uint64_t bytes_read() const = 0;
  /// Returns the ranges that were read to their end so far, in order.
  virtual const std::vector<FinishedRange>& finished() const = 0;
};

/// The input files of a build. The constructor examines all files, so that a missing file
/// is found at once and not hours later. No file is held open. Immutable; any thread may
/// call an input set.
class InputSet {
 public:
  /// Asks the object store about the addresses among the arguments.
  ///
  /// Throws InputError for an argument that matches nothing, and for a directory that
  /// does not hold exactly one kind of data. Also throws InputError for a file that
  /// cannot be opened, a compression that cannot be unpacked, and an option that applies
  /// to no file.
  explicit InputSet(InputOptions options);

  const InputOptions& options() const { return options_; }
  /// Returns the files in the order of the arguments. The matches of a pattern and the
  /// files of a directory are sorted by the bytes of their names; the files of a
  /// save_to_disk directory are in the order of its state.json. A file named twice counts
  /// once.
  const std::vector<InputFile>& files() const { return files_; }
  uint64_t stored_bytes() const { return stored_bytes_; }
  /// Returns a line about files in directories and patterns that are no corpus, such as
  /// "2 files passed over as no corpus: README.md, LICENSE"; empty if there are no such
  /// files.
  const std::string& passed_over() const { return passed_over_; }

  /// Cuts all files in order into parts of about `about_bytes` stored bytes: small files
  /// share a part, and a big file that can be split gives many parts. The result depends
  /// on the files, their order and about_bytes only.
  std::vector<InputPart> parts(uint64_t about_bytes) const;

  std::unique_ptr<RecordReader> open(const InputPart& part) const;

  /// Returns about how much memory an open reader of the part holds, by the metadata of
  /// the part's files. The memory is a record, or for Parquet and Arrow the largest row
  /// group or record batch, at most max_batch_bytes. Opens the Parquet and Arrow files of
  /// the part.
  uint64_t reader_bytes(const InputPart& part) const;

  /// Returns a hash of paths, sizes, times of change and options. For an object its
  /// version stands in place of the time.
  std::string fingerprint() const;

  /// Returns the number of line ends in the file before `begin`. The line of a record is
  /// this number plus the record's place.line. For JSON lines and begin > 0 the function
  /// reads the file up to `begin`; else it returns 0. The sum of FinishedRange::lines
  /// over all earlier ranges of the file is the same number.
  int64_t lines_before(int file, uint64_t begin) const;

  /// Returns a text such as "corpus/a.jsonl:17", "b.parquet: row 3" or "c.txt". May call
  /// lines_before.
  std::string describe(const RecordPlace& place) const;

 private:
  InputOptions options_;
  std::vector<InputFile> files_;
  std::string passed_over_;
  uint64_t stored_bytes_ = 0;
};

/// Returns true for a directory that Hugging Face datasets wrote with save_to_disk and
/// can open again.
bool is_saved_dataset(const fs::path& directory);

}  // namespace longhaul::data
