#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// The largest document, or line of JSON, that is read.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{256} << 20;

/// Files from arguments: each is a path or a shell pattern (* ? []); the result of each
/// pattern is sorted, a file named twice counts once. InputError when an argument matches
/// nothing or names a directory.
std::vector<fs::path> expand_inputs(const std::vector<std::string>& arguments);

/// A record as it lies in its file: a line of a JSON lines file (names *.jsonl, *.json,
/// *.ndjson), else the whole file. Any may be gzipped (*.gz).
struct RawRecord {
  std::string bytes;  ///< without the line's end
  int file = 0;       ///< index into the reader's files
  int64_t line = 0;   ///< from 1; 0: the record is the whole file
};

/// A file that was read to its end.
struct SourceFile {
  fs::path path;
  uint64_t bytes = 0;  ///< as stored (compressed)
  std::string hash;    ///< combine_hashes of its 1 MiB blocks, as stored
  int64_t records = 0;
};

/// Reads records one by one in constant memory. Not thread-safe.
class RecordReader {
 public:
  explicit RecordReader(std::vector<fs::path> files);
  ~RecordReader();
  /// False at the end of the last file. InputError: a file that cannot be read, damaged
  /// or truncated gzip, a record above kMaxRecordBytes.
  bool next(RawRecord& record);
  /// The files that were read to their end so far.
  const std::vector<SourceFile>& finished() const;
  const std::vector<fs::path>& files() const;
  /// Stored bytes of all files, and read so far, for a progress display.
  uint64_t total_bytes() const;
  uint64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Why a record holds no usable document.
enum class RecordProblem {
  None,
  Empty,  ///< no text, or null: left out and counted, never an error
  InvalidUtf8,
  InvalidJson,
  NotAnObject,
  FieldMissing,
  FieldNotText,
  FieldTwice,
};
std::string_view problem_name(RecordProblem problem);

/// A document, or why there is none.
struct ParsedRecord {
  std::string text;
  RecordProblem problem = RecordProblem::None;
  std::string detail;  ///< for people: byte offset, parser's message
};

/// Finds the text of a record: `field` of a JSON line, or the whole file. Pure; any
/// thread may call it. It may use record.bytes as scratch.
ParsedRecord parse_record(RawRecord& record, std::string_view field);

/// "corpus/a.jsonl.gz:17".
std::string record_place(const std::vector<fs::path>& files, int file, int64_t line);

/// Records left out, by cause.
struct DroppedRecords {
  struct Example {
    std::string place;
    std::string detail;
  };
  static constexpr size_t kExamples = 5;
  std::map<RecordProblem, int64_t> counts;
  std::map<RecordProblem, std::vector<Example>> first;  ///< up to kExamples each

  void add(RecordProblem problem, Example example);
  int64_t total() const;
  /// One line per cause and example; empty when nothing was dropped.
  std::string describe() const;
};

/// What to do with a record that is broken (an empty one is always left out).
enum class BadRecords { Fail, Drop };

/// Records and texts in one: for callers that need no threads. Not thread-safe.
class DocumentReader {
 public:
  DocumentReader(std::vector<fs::path> files, std::string field,
                 BadRecords bad = BadRecords::Fail);
  /// False at the end. InputError for a bad record with BadRecords::Fail.
  bool next(std::string& text);
  const DroppedRecords& dropped() const { return dropped_; }
  const RecordReader& reader() const { return reader_; }

 private:
  RecordReader reader_;
  std::string field_;
  BadRecords bad_;
  DroppedRecords dropped_;
  RawRecord record_;
};

/// The error for a broken record, with its place and what to do.
[[noreturn]] void fail_record(const std::string& place, RecordProblem problem,
                              const std::string& detail);

}  // namespace longhaul::data
