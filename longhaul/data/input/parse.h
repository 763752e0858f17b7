#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// A record that holds no document.
ParsedRecord broken(RecordProblem problem, std::string detail = {});

/// What is wrong with bytes that should be UTF-8; `of` says what they are.
ParsedRecord invalid_utf8(std::string_view bytes, std::string_view of);

/// The document in a JSON line. May write into `line`.
ParsedRecord parse_json_line(std::string& line, std::string_view field);

/// The document in a row of CSV.
ParsedRecord parse_csv_row(const RawRecord& record);

/// "18446744073709551615 at position 3".
std::string value_at(uint64_t value, size_t position);

/// A document of ready ids, with what stands beside it.
ParsedRecord parse_ids(std::span<const int64_t> ids,
                       std::optional<std::span<const int64_t>> labels,
                       std::optional<std::span<const int64_t>> mask);

}  // namespace longhaul::data
