#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Returns a record that holds no document.
ParsedRecord broken(RecordProblem problem, std::string detail = {});

/// Returns what is wrong with bytes that should be UTF-8, or a record without a problem.
/// `of` names the bytes in the message.
ParsedRecord invalid_utf8(std::string_view bytes, std::string_view of);

/// Returns the document in a JSON line. May write into `line`.
ParsedRecord parse_json_line(std::string& line, std::string_view field);

/// Returns the document in a row of CSV.
ParsedRecord parse_csv_row(const RawRecord& record);

/// Returns "18446744073709551615 at position 3".
std::string value_at(uint64_t value, size_t position);

/// Returns the document of a list of ids with its labels and its mask.
ParsedRecord parse_ids(std::span<const int64_t> ids,
                       std::optional<std::span<const int64_t>> labels,
                       std::optional<std::span<const int64_t>> mask);

}  // namespace longhaul::data
