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
/// InputError that lists the names when it is none.
InputFormat parse_format(std::string_view name);

enum class Compression : uint8_t { None, Gzip, Zstd };

/// What all open readers of Parquet and Arrow may hold together.
class ReaderMemory;
/// Null in a build without Arrow.
std::shared_ptr<ReaderMemory> make_reader_memory(uint64_t bytes);

struct InputOptions {
  /// Files, shell patterns (* ? [] and ** for any directories), and directories: what
  /// Hugging Face `datasets` wrote with save_to_disk, or one with data of one kind.
  std::vector<std::string> arguments;
  /// Of JSON lines; the column of CSV, Parquet and Arrow.
  std::string field = "text";
  /// The field was asked for: inputs of which none has fields are refused.
  bool field_asked = false;
  /// By the file's name where absent: *.jsonl *.ndjson *.json, *.csv *.tsv, *.parquet,
  /// *.arrow, the endings of text (text_endings()); others are refused. *.gz and *.zst
  /// around text, JSON lines and CSV always count.
  std::optional<InputFormat> format;
  /// What separates the columns of CSV; 0 means tab for *.tsv, else a comma. Any other
  /// delimiter is refused where no input is CSV.
  char delimiter = 0;
  /// A longer record is a bad one (TooLong). At most kMaxRecordBytes.
  uint64_t max_record_bytes = kMaxRecordBytes;
  /// What one open reader of Parquet or Arrow may hold: a record batch, or the pages of a
  /// row group with the rows decoded from them. More is refused by name.
  uint64_t max_batch_bytes = uint64_t{1} << 30;
  /// Shared by the readers of one build; null: no limit for all of them.
  std::shared_ptr<ReaderMemory> reader_memory;
};

struct InputFile {
  fs::path path;
  uint64_t stored_bytes = 0;  ///< as it lies on the disk, compressed
  int64_t modified_ns = 0;
  InputFormat format = InputFormat::Text;
  Compression compression = Compression::None;
};

/// A piece of a file. JSON lines that are not compressed: the records that START in bytes
/// [begin, end). Parquet: row groups. Arrow: record batches. Else the whole file.
struct InputRange {
  static constexpr uint64_t kToEnd = UINT64_MAX;
  int file = 0;
  uint64_t begin = 0;
  uint64_t end = kToEnd;  ///< kToEnd: of the file, whatever it holds
  bool operator==(const InputRange&) const = default;
};

/// What one worker takes at a time.
struct InputPart {
  std::vector<InputRange> ranges;
  uint64_t stored_bytes = 0;
  bool operator==(const InputPart&) const = default;
};

/// A range that was read to its end.
struct FinishedRange {
  InputRange range;
  /// Bytes that were hashed: of a file or byte range all in it; of Parquet those of the
  /// columns that were read; of Arrow those of the messages.
  uint64_t stored_bytes = 0;
  std::string hash;     ///< xxh3-128 of them, in order, as hash_hex writes it
  int64_t records = 0;  ///< as next() gave them: bad and empty ones count
  int64_t lines = 0;    ///< JSON lines, CSV: line ends inside; Parquet, Arrow: rows
};

/// Reads the records of a part one by one, in constant memory. Not thread-safe; many may
/// be open at once.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// False at the end. InputError with file and place: a file that cannot be read, is
  /// damaged or truncated, lacks the column, or holds a batch above max_batch_bytes.
  virtual bool next(RawRecord& record) = 0;
  /// Stored bytes so far, for a progress display: ends at the part's stored_bytes or a
  /// little beyond.
  virtual uint64_t bytes_read() const = 0;
  /// The ranges that were read to their end so far, in order.
  virtual const std::vector<FinishedRange>& finished() const = 0;
};

/// The files of a build. All are looked at when it is made, so that a missing one is not
/// found hours later; none is held open. Immutable: any thread may call it.
class InputSet {
 public:
  /// InputError: an argument that matches nothing, a directory that holds no one kind of
  /// data, a file that cannot be opened, a kind of compression that is not read, an
  /// option that has no use for any of the files.
  explicit InputSet(InputOptions options);

  const InputOptions& options() const { return options_; }
  /// In the order of the arguments; a pattern's matches and a directory's files are
  /// sorted by the bytes of their names (save_to_disk: in the order of its state.json). A
  /// file named twice counts once.
  const std::vector<InputFile>& files() const { return files_; }
  uint64_t stored_bytes() const { return stored_bytes_; }
  /// What directories and patterns hold beside them that is no corpus: "2 files passed
  /// over as no corpus: README.md, LICENSE"; empty where there is nothing.
  const std::string& passed_over() const { return passed_over_; }

  /// All files cut into parts of about that many stored bytes, in order: small files
  /// share a part, a big one that can be split gives many. A pure function of the files,
  /// their order and about_bytes.
  std::vector<InputPart> parts(uint64_t about_bytes) const;

  std::unique_ptr<RecordReader> open(const InputPart& part) const;

  /// What an open reader of the part holds at a time, about, as its files' metadata say:
  /// a record; of Parquet and Arrow the largest row group or record batch, at most
  /// max_batch_bytes. Opens the Parquet and Arrow files of the part.
  uint64_t reader_bytes(const InputPart& part) const;

  /// Of paths, sizes, times of change and options: differs when the inputs changed.
  std::string fingerprint() const;

  /// Line ends in the file before `begin`: a record's line is this plus its place.line.
  /// Reads the file up to there for JSON lines and begin > 0, else 0 at no cost. Whoever
  /// has read all ranges has the same number from FinishedRange::lines.
  int64_t lines_before(int file, uint64_t begin) const;

  /// "corpus/a.jsonl:17", "b.parquet: row 3", "c.txt"; may call lines_before.
  std::string describe(const RecordPlace& place) const;

 private:
  InputOptions options_;
  std::vector<InputFile> files_;
  std::string passed_over_;
  uint64_t stored_bytes_ = 0;
};

/// True for a directory that Hugging Face datasets wrote with save_to_disk: one that
/// datasets itself would open.
bool is_saved_dataset(const fs::path& directory);

}  // namespace longhaul::data
