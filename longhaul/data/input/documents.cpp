#include "longhaul/data/input/documents.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::data {
namespace {

constexpr size_t kMaxJsonDepth = 64;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

ParsedRecord broken(RecordProblem problem, std::string detail = {}) {
  return {{}, problem, std::move(detail)};
}

std::string field_names(const simdjson::dom::object& object) {
  constexpr int kMost = 8;
  std::string names;
  int count = 0;
  for (const simdjson::dom::key_value_pair& entry : object) {
    if (++count > kMost) return names + ", ...";
    names += fmt::format("{}'{}'", count > 1 ? ", " : "", entry.key.substr(0, 40));
  }
  return names.empty() ? "none" : names;
}

/// The value of the field in an object of a JSON line.
ParsedRecord take_field(const simdjson::dom::object& object, std::string_view field) {
  simdjson::dom::element value;
  int times = 0;
  for (const simdjson::dom::key_value_pair& entry : object) {
    if (entry.key != field) continue;
    value = entry.value;
    ++times;
  }
  if (times == 0) {
    return broken(RecordProblem::FieldMissing,
                  fmt::format("'{}' (its fields: {})", field, field_names(object)));
  }
  if (times > 1) return broken(RecordProblem::FieldTwice, fmt::format("'{}'", field));
  if (value.is_null()) return broken(RecordProblem::Empty);
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    return broken(RecordProblem::FieldNotText, fmt::format("'{}'", field));
  }
  if (text.empty()) return broken(RecordProblem::Empty);
  return {std::string(text), RecordProblem::None, {}};
}

ParsedRecord parse_line(std::string& line, std::string_view field) {
  // Keeping the parser saves its buffers' allocation for each line.
  thread_local simdjson::dom::parser parser(kMaxRecordBytes + 64);
  line.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  if (parser.max_depth() != kMaxJsonDepth || parser.capacity() < line.size()) {
    const auto error =
        parser.allocate(std::max<size_t>(line.size(), 1 << 16), kMaxJsonDepth);
    LH_CHECK(error == simdjson::SUCCESS, "data", "no memory for a line of {} bytes",
             line.size());
  }
  simdjson::dom::element root;
  const auto error = parser.parse(line.data(), line.size(), false).get(root);
  if (error != simdjson::SUCCESS) {
    return broken(RecordProblem::InvalidJson, simdjson::error_message(error));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return broken(RecordProblem::NotAnObject);
  return take_field(object, field);
}

}  // namespace

std::string_view problem_name(RecordProblem problem) {
  switch (problem) {
    case RecordProblem::None:
      return "none";
    case RecordProblem::Empty:
      return "empty";
    case RecordProblem::InvalidUtf8:
      return "invalid UTF-8";
    case RecordProblem::InvalidJson:
      return "invalid JSON";
    case RecordProblem::NotAnObject:
      return "not a JSON object";
    case RecordProblem::FieldMissing:
      return "field missing";
    case RecordProblem::FieldNotText:
      return "field is not text";
    case RecordProblem::FieldTwice:
      return "field stands twice";
  }
  return "unknown";
}

ParsedRecord parse_record(RawRecord& record, std::string_view field) {
  if (is_blank(record.bytes)) return broken(RecordProblem::Empty);
  if (const auto at = find_invalid_utf8(record.bytes)) {
    return broken(RecordProblem::InvalidUtf8,
                  fmt::format("byte {} (0x{:02x}) of the {}", *at,
                              static_cast<unsigned char>(record.bytes[*at]),
                              record.line == 0 ? "file" : "line"));
  }
  if (record.line == 0) return {std::exchange(record.bytes, {}), RecordProblem::None, {}};
  return parse_line(record.bytes, field);
}

void DroppedRecords::add(RecordProblem problem, Example example) {
  ++counts[problem];
  std::vector<Example>& examples = first[problem];
  if (examples.size() < kExamples) examples.push_back(std::move(example));
}

int64_t DroppedRecords::total() const {
  int64_t sum = 0;
  for (const auto& [problem, count] : counts) sum += count;
  return sum;
}

std::string DroppedRecords::describe() const {
  std::string text;
  for (const auto& [problem, count] : counts) {
    text += fmt::format("{} {}:", grouped(count), problem_name(problem));
    for (const Example& example : first.at(problem)) {
      text += " " + example.place;
      if (!example.detail.empty()) text += fmt::format(" ({})", example.detail);
    }
    text += static_cast<size_t>(count) > kExamples ? " ...\n" : "\n";
  }
  return text;
}

void fail_record(const std::string& place, RecordProblem problem,
                 const std::string& detail) {
  throw InputError(
      "data",
      fmt::format("{}: {}{}{}; mend it, or leave such records out and count "
                  "them with --bad-records drop",
                  place, problem_name(problem), detail.empty() ? "" : ": ", detail));
}

DocumentReader::DocumentReader(std::vector<fs::path> files, std::string field,
                               BadRecords bad)
    : reader_(std::move(files)), field_(std::move(field)), bad_(bad) {}

bool DocumentReader::next(std::string& text) {
  while (reader_.next(record_)) {
    ParsedRecord parsed = parse_record(record_, field_);
    if (parsed.problem == RecordProblem::None) {
      text = std::move(parsed.text);
      return true;
    }
    const std::string place = record_place(reader_.files(), record_.file, record_.line);
    if (bad_ == BadRecords::Fail && parsed.problem != RecordProblem::Empty) {
      fail_record(place, parsed.problem, parsed.detail);
    }
    dropped_.add(parsed.problem, {place, parsed.detail});
  }
  return false;
}

}  // namespace longhaul::data
