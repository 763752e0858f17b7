#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::data {

struct InputOptions;

/// The most bytes of a document, a JSON line or a row of CSV. A longer record is a bad
/// record (TooLong) and is skipped in constant memory.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{256} << 20;

/// Why a record holds no usable document.
enum class RecordProblem : uint8_t {
  None,
  /// No text, no ids, or null: the record is left out and counted, but is no error.
  Empty,
  InvalidUtf8,
  InvalidJson,
  NotAnObject,
  FieldMissing,
  FieldNotText,  ///< neither text nor a list of integers
  FieldTwice,
  TooLong,          ///< above kMaxRecordBytes
  WrongFieldCount,  ///< a CSV row with more or fewer fields than its header
  BadQuotes,        ///< a CSV field with text after its closing quote
  IdOutOfRange,     ///< negative, or above 2^31 - 1
  BadMask,          ///< attention_mask: not zeros and ones, or another length
  BadLabels,        ///< labels: neither -100 nor the id, or another length
  Chat,             ///< a list of messages, where text is read
  NotTokenized,     ///< text that the tokenizer cannot express
  BadChat,          ///< a chat that cannot be read, rendered or learned from
};
std::string_view problem_name(RecordProblem problem);

/// The place of a record. Lines are counted from 1, as in editors, and rows from 0, as in
/// table libraries.
struct RecordPlace {
  int file = 0;  ///< index into InputSet::files()
  /// The line on which a record of JSON lines or CSV begins, counted from 1 at
  /// range_begin (see InputSet::lines_before). For Parquet and Arrow the row in the file;
  /// for text 0.
  int64_t line = 0;
  /// The record's first byte in the decompressed file; -1 for Parquet and Arrow.
  int64_t offset = -1;
  uint64_t range_begin = 0;  ///< begin of the InputRange that the record was read from
};

/// A record as a reader found it. parse_record makes a document of the record.
struct RawRecord {
  enum class Form : uint8_t {
    WholeFile,  ///< bytes: a text file
    JsonLine,   ///< bytes: a line without its end
    CsvRow,     ///< bytes: a row as it stands in the file, without its end
    Text,       ///< bytes: the document itself
    Object,     ///< bytes: a row's chat as a JSON object
    Ids,        ///< ids: the document itself
  };
  Form form = Form::WholeFile;
  std::string bytes;
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;  ///< filled where has_labels is true
  /// Filled if has_mask is true.
  std::vector<int64_t> attention_mask;
  bool has_labels = false;
  bool has_mask = false;
  char delimiter = ',';     ///< CsvRow: the character between two fields
  int32_t csv_column = 0;   ///< CsvRow: number of the field with the document
  int32_t csv_columns = 0;  ///< CsvRow: number of fields in the header
  RecordPlace place;
  /// A problem that the reader has found: Empty for a null, TooLong.
  RecordProblem problem = RecordProblem::None;
  std::string detail;

  /// Returns about how many bytes of memory the record holds.
  uint64_t memory_bytes() const;
  /// Empties the record and keeps its buffers.
  void clear();
};

/// A document, or the reason why there is none.
struct ParsedRecord {
  enum class Kind : uint8_t { Text, Ids };
  Kind kind = Kind::Text;
  std::string text;                ///< Text: valid UTF-8, not empty
  std::vector<int32_t> ids;        ///< Ids: not empty, none negative
  std::vector<uint8_t> is_target;  ///< Ids: one 0 or 1 per id; empty: all are targets
  int64_t not_targets = 0;         ///< zeros in is_target
  /// Positions with attention_mask 0 that were cut off at the end.
  int64_t padding = 0;
  RecordProblem problem = RecordProblem::None;
  std::string detail;  ///< for people: byte offset in the record, parser's message
};

/// Finds the document of a record: options.field of a JSON line or a CSV row, else the
/// whole record. A list of integers is a document of token ids. If there are an
/// attention_mask and labels beside the ids, mask 0 and label -100 mark tokens that are
/// no targets. The function may write to the record's buffers or take the buffers. Pure;
/// any thread may call it.
ParsedRecord parse_record(RawRecord& record, const InputOptions& options);

/// Counts and examples of records that were left out, by cause.
struct DroppedRecords {
  struct Example {
    std::string place;
    std::string detail;
  };
  static constexpr size_t kExamples = 5;
  std::map<RecordProblem, int64_t> counts;
  /// Up to kExamples for each cause.
  std::map<RecordProblem, std::vector<Example>> first;

  void add(RecordProblem problem, Example example);
  int64_t total() const;
  /// Returns total() without the empty records.
  int64_t bad() const;
  /// Returns one line for each cause, with examples; empty when nothing was dropped.
  std::string describe() const;
  /// Returns describe() in one line, each cause followed by "; ", for an error.
  std::string in_one_line() const;
};

/// What a build does with a broken record. An empty record is always left out.
enum class BadRecords : uint8_t { Fail, Drop };

/// Returns one line of a list of bad records, as JSON with a newline. The JSON has file,
/// line or row, byte offset if the offset is known, problem and detail. `line` is
/// RecordPlace::line plus InputSet::lines_before.
std::string bad_record_json(const std::string& path, bool is_row, int64_t line,
                            int64_t offset, RecordProblem problem,
                            std::string_view detail);

/// Returns "PLACE: PROBLEM: DETAIL", as errors tell of a broken record.
std::string describe_broken(const std::string& place, RecordProblem problem,
                            const std::string& detail);

/// The end of a message about a single bad record, which says what the user can do.
inline constexpr std::string_view kRecordAdvice =
    "; correct the record, or leave such records out and count them with --bad-records "
    "drop";

/// The end of a message about bytes that are not UTF-8, which says what the user can do.
inline constexpr std::string_view kEncodingAdvice =
    "if it is text in another encoding, make UTF-8 of it, for example with `iconv -f "
    "LATIN1 -t UTF-8`";

}  // namespace longhaul::data
