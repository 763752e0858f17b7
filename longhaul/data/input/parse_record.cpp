#include <fmt/format.h>
#include <simdjson.h>

#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/parse.h"

namespace longhaul::data {
namespace {

constexpr int64_t kIgnoredLabel = -100;  // the value of Hugging Face's libraries
constexpr int64_t kLargestId = INT32_MAX;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// Moves a record's text out of the record and checks that it is UTF-8.
ParsedRecord take_text(RawRecord& record, std::string_view of) {
  ParsedRecord parsed = invalid_utf8(record.bytes, of);
  if (parsed.problem == RecordProblem::None)
    parsed.text = std::exchange(record.bytes, {});
  return parsed;
}

std::string length_detail(size_t found, size_t ids) {
  return fmt::format("{} values for {} ids", found, ids);
}

/// Returns the length without the trailing positions of mask 0.
size_t unpadded_length(std::span<const int64_t> mask) {
  size_t length = mask.size();
  while (length > 0 && mask[length - 1] == 0) --length;
  return length;
}

}  // namespace

ParsedRecord broken(RecordProblem problem, std::string detail) {
  ParsedRecord record;
  record.problem = problem;
  record.detail = std::move(detail);
  return record;
}

std::string value_at(uint64_t value, size_t position) {
  return fmt::format("{} at position {}", value, position);
}

ParsedRecord invalid_utf8(std::string_view bytes, std::string_view of) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) return {};
  const size_t at = find_invalid_utf8(bytes).value_or(0);
  return broken(RecordProblem::InvalidUtf8,
                fmt::format("byte {} (0x{:02x}) of the {}", at,
                            static_cast<unsigned char>(bytes[at]), of));
}

ParsedRecord parse_ids(std::span<const int64_t> ids,
                       std::optional<std::span<const int64_t>> labels,
                       std::optional<std::span<const int64_t>> mask) {
  if (labels && labels->size() != ids.size()) {
    return broken(RecordProblem::BadLabels, length_detail(labels->size(), ids.size()));
  }
  size_t length = ids.size();
  if (mask) {
    if (mask->size() != ids.size()) {
      return broken(RecordProblem::BadMask, length_detail(mask->size(), ids.size()));
    }
    for (size_t i = 0; i < mask->size(); ++i) {
      if ((*mask)[i] == 0 || (*mask)[i] == 1) continue;
      return broken(RecordProblem::BadMask,
                    fmt::format("{} at position {}", (*mask)[i], i));
    }
    length = unpadded_length(*mask);
  }
  ParsedRecord parsed;
  parsed.kind = ParsedRecord::Kind::Ids;
  parsed.padding = static_cast<int64_t>(ids.size() - length);
  if (length == 0) {
    parsed.problem = RecordProblem::Empty;
    return parsed;
  }
  parsed.ids.resize(length);
  if (labels || mask) parsed.is_target.assign(length, 1);
  for (size_t i = 0; i < length; ++i) {
    if (ids[i] < 0 || ids[i] > kLargestId) {
      return broken(RecordProblem::IdOutOfRange,
                    fmt::format("{} at position {}", ids[i], i));
    }
    parsed.ids[i] = static_cast<int32_t>(ids[i]);
    if (labels && (*labels)[i] != ids[i] && (*labels)[i] != kIgnoredLabel) {
      return broken(RecordProblem::BadLabels,
                    fmt::format("label {} at position {}, where the id is {}; labels "
                                "must be the ids themselves, not shifted, or -100",
                                (*labels)[i], i, ids[i]));
    }
    const bool ignored =
        (mask && (*mask)[i] == 0) || (labels && (*labels)[i] == kIgnoredLabel);
    if (!ignored) continue;
    parsed.is_target[i] = 0;
    ++parsed.not_targets;
  }
  if (parsed.not_targets == 0) parsed.is_target.clear();
  return parsed;
}

ParsedRecord parse_record(RawRecord& record, const InputOptions& options) {
  if (record.problem != RecordProblem::None) {
    return broken(record.problem, std::move(record.detail));
  }
  using Form = RawRecord::Form;
  if (options.chats) {
    if (record.form != Form::JsonLine && record.form != Form::Object) {
      return broken(RecordProblem::BadChat,
                    "chats are read from JSON lines, Parquet and Arrow");
    }
    if (is_blank(record.bytes)) return broken(RecordProblem::Empty);
    return take_text(record, "record");
  }
  switch (record.form) {
    case Form::WholeFile:
      if (is_blank(record.bytes)) return broken(RecordProblem::Empty);
      return take_text(record, "file");
    case Form::JsonLine:
      if (is_blank(record.bytes)) return broken(RecordProblem::Empty);
      return parse_json_line(record.bytes, options.field);
    case Form::CsvRow:
      return parse_csv_row(record);
    case Form::Text:
      if (record.bytes.empty()) return broken(RecordProblem::Empty);
      return take_text(record, "value");
    case Form::Object:
      break;  // only where chats are read
    case Form::Ids: {
      using Optional = std::optional<std::span<const int64_t>>;
      return parse_ids(record.ids,
                       record.has_labels ? Optional(record.labels) : std::nullopt,
                       record.has_mask ? Optional(record.attention_mask) : std::nullopt);
    }
  }
  return broken(RecordProblem::FieldNotText);
}

}  // namespace longhaul::data
