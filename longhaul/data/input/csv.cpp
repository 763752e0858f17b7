// Reads CSV as in RFC 4180: fields may be quoted, and may then contain separators, line
// ends and doubled quotes. As in Python's csv module a quote inside an unquoted field is
// an ordinary character. All rows end as the header row does: with \n (or \r\n), or with
// a lone \r. The other character is then ordinary text. Python and pandas write such a
// character without quotes and cannot read these files back.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "longhaul/data/input/parse.h"
#include "longhaul/data/input/text_stream.h"

namespace longhaul::data {
namespace {

/// A field of a row, without its outer quotes.
struct Field {
  std::string_view raw;
  bool quoted = false;
  bool bad = false;  ///< text follows the closing quote
};

/// Walks over the fields of a row.
class FieldCursor {
 public:
  FieldCursor(std::string_view row, char delimiter) : rest_(row), delimiter_(delimiter) {}

  bool next(Field& field) {
    if (ended_) return false;
    field = {};
    size_t end = 0;  // the place of the separator after the field
    if (!rest_.empty() && rest_.front() == '"') {
      const size_t quote = closing_quote();
      field.quoted = true;
      field.raw = rest_.substr(1, quote - 1);
      end = std::min(quote + 1, rest_.size());
      field.bad =
          quote == rest_.size() || (end < rest_.size() && rest_[end] != delimiter_);
    }
    end = rest_.find(delimiter_, end);
    if (!field.quoted) field.raw = rest_.substr(0, end);
    ended_ = end == std::string_view::npos;
    if (!ended_) rest_.remove_prefix(end + 1);
    return true;
  }

 private:
  size_t closing_quote() const {
    size_t at = rest_.find('"', 1);
    while (at != std::string_view::npos && at + 1 < rest_.size() &&
           rest_[at + 1] == '"') {
      at = rest_.find('"', at + 2);
    }
    return std::min(at, rest_.size());
  }

  std::string_view rest_;
  char delimiter_;
  bool ended_ = false;
};

std::string unquoted(const Field& field) {
  if (!field.quoted) return std::string(field.raw);
  std::string text;
  text.reserve(field.raw.size());
  for (size_t from = 0; from < field.raw.size();) {
    const size_t quote = std::min(field.raw.find('"', from), field.raw.size());
    text.append(field.raw, from, quote + 1 - from);
    from = quote + 2;  // leaves out the second quote of a pair
  }
  return text;
}

class CsvReader final : public TextStream {
 public:
  CsvReader(const InputFile& file, const InputOptions& options)
      : TextStream(file, options) {
    delimiter_ = options.delimiter != 0 ? options.delimiter : default_delimiter(file);
    ends_['\n'] = ends_['\r'] = true;
    ends_[static_cast<unsigned char>(delimiter_)] = true;
    read_header(options.field);
  }

  bool next(RawRecord& record) override {
    if (!read_row(record)) return false;
    record.form = RawRecord::Form::CsvRow;
    record.delimiter = delimiter_;
    record.csv_column = column_;
    record.csv_columns = columns_;
    return true;
  }
  FinishedRange finish() override {
    lines_ = line_ - 1;
    return TextStream::finish();
  }

 private:
  enum class State { FieldStart, Plain, Quoted, AfterQuote };

  static char default_delimiter(const InputFile& file) {
    const fs::path plain =
        file.compression == Compression::None ? file.path : file.path.stem();
    return plain.extension() == ".tsv" ? '\t' : ',';
  }

  void read_header(const std::string& wanted) {
    begin_text();
    RawRecord header;
    const bool found = read_row(header);
    if (after_return_ && fill() && rest_.front() == '\n') {
      drop(1);
      after_return_ = false;
    }
    ends_[after_return_ ? '\n' : '\r'] = false;
    end_ = after_return_ ? '\r' : '\n';
    if (!found || header.bytes.empty()) {
      file_.fail("no header row that names the columns", 0,
                 "write one, or leave the file out");
    }
    if (header.problem != RecordProblem::None ||
        invalid_utf8(header.bytes, "row").problem != RecordProblem::None) {
      file_.fail("a header row that is not UTF-8, or above the limit of a record", 0,
                 "write the names of the columns there");
    }
    std::string names;
    std::vector<std::string> known;
    int times = 0;
    FieldCursor fields(header.bytes, delimiter_);
    for (Field field; fields.next(field); ++columns_) {
      const std::string name = unquoted(field);
      if (columns_ < 20) {
        names += fmt::format("{}'{}'", columns_ > 0 ? ", " : "", name.substr(0, 40));
        if (name.size() <= 40) known.push_back(name);
      }
      if (name != wanted) continue;
      column_ = columns_;
      ++times;
    }
    if (times == 1) return;
    const std::string another = times == 0 ? name_another(known, wanted) : "";
    file_.fail(
        fmt::format("{} column '{}' in the header row (its columns: {}{}){}",
                    times == 0 ? "no" : "more than one", wanted, names,
                    columns_ > 20 ? ", ..." : "", another),
        0,
        another.empty()
            ? "name another column with --field, or another separator with --delimiter"
            : "or name another separator with --delimiter");
  }

  /// Reads the next row without its line end. Returns false when there is no next row.
  bool read_row(RawRecord& record) {
    State state = State::FieldStart;
    bool any = false;
    while (fill()) {
      if (!any) {
        any = true;
        record.place.line = line_;
        record.place.offset = static_cast<int64_t>(position_);
      }
      const char* const begin = rest_.data();
      const char* const end = begin + rest_.size();
      const char* const stop = scan(begin, end, state);
      keep(record, rest_.first(static_cast<size_t>(stop - begin)));
      line_ += std::count(begin, stop, '\n');
      const bool ended = stop != end;
      if (ended) after_return_ = *stop == '\r';
      drop(static_cast<size_t>(stop - begin) + (ended ? 1 : 0));
      if (!ended) continue;
      ++line_;
      drop_return(record);
      return true;
    }
    if (state == State::Quoted) {
      file_.fail(
          fmt::format("a quoted field that is never closed: its quote stands at byte {} "
                      "of the text, in the row that begins on line {}. The file ends",
                      quote_, record.place.line),
          file_.size(), "close or remove the quote, or copy the whole file again");
    }
    drop_return(record);
    return any;
  }

  /// Removes the \r of a line end \r\n.
  void drop_return(RawRecord& record) const {
    if (end_ == '\n' && record.bytes.ends_with('\r')) record.bytes.pop_back();
  }

  /// Walks to the end of the row, or of the bytes [p, end). Returns that address.
  const char* scan(const char* p, const char* end, State& state) {
    const char* const begin = p;
    while (p < end) {
      switch (state) {
        case State::FieldStart:
          if (*p == '"') {
            quote_ = position_ + static_cast<uint64_t>(p - begin);
            state = State::Quoted;
            ++p;
          } else {
            state = State::Plain;
          }
          break;
        case State::Plain:
          while (p < end && !ends_[static_cast<unsigned char>(*p)]) ++p;
          if (p == end || *p != delimiter_) return p;
          state = State::FieldStart;
          ++p;
          break;
        case State::Quoted:
          p = static_cast<const char*>(std::memchr(p, '"', static_cast<size_t>(end - p)));
          if (p == nullptr) return end;
          state = State::AfterQuote;
          ++p;
          break;
        case State::AfterQuote:
          state = *p == '"' ? State::Quoted : State::Plain;
          if (*p == '"') ++p;
          break;
      }
    }
    return end;
  }

  char delimiter_ = ',';
  std::array<bool, 256> ends_{};
  int32_t column_ = 0;
  int32_t columns_ = 0;
  uint64_t quote_ = 0;  // place where the last quoted field begins
  int64_t line_ = 1;
  bool after_return_ = false;  // the last row ended with \r
  char end_ = '\r';            // ends all rows but the header
};

}  // namespace

ParsedRecord parse_csv_row(const RawRecord& record) {
  if (record.bytes.empty()) return broken(RecordProblem::Empty);
  ParsedRecord parsed = invalid_utf8(record.bytes, "row");
  if (parsed.problem != RecordProblem::None) return parsed;
  Field wanted;
  int64_t count = 0;
  FieldCursor fields(record.bytes, record.delimiter);
  for (Field field; fields.next(field); ++count) {
    if (count == record.csv_column) wanted = field;
    if (field.bad) {
      return broken(RecordProblem::BadQuotes, fmt::format("in field {}", count + 1));
    }
  }
  if (count != record.csv_columns) {
    const bool joined = record.bytes.starts_with("\xEF\xBB\xBF");
    return broken(RecordProblem::WrongFieldCount,
                  fmt::format("{}, but the header has {}{}", count, record.csv_columns,
                              joined ? "; the row begins with a byte order mark, as "
                                       "where files were joined"
                                     : ""));
  }
  parsed.text = unquoted(wanted);
  if (parsed.text.empty()) return broken(RecordProblem::Empty);
  return parsed;
}

std::unique_ptr<RangeReader> open_csv(const InputFile& file, const InputRange& range,
                                      const InputOptions& options) {
  LH_CHECK(range.begin == 0, "data", "{}: a range of a CSV file", file.path.string());
  if (options.chats) {
    fail_input("data",
               "{}: chats are read from JSON lines, Parquet and Arrow; write each row's "
               "chat as a line of JSON",
               file.path.string());
  }
  return std::make_unique<CsvReader>(file, options);
}

}  // namespace longhaul::data
