#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/input/record.h"

namespace longhaul::data {

/// Returns a result without a document, for a record with this problem.
ParsedRecord broken(RecordProblem problem, std::string detail = {});

/// Returns a result with the problem of bytes that are not UTF-8, or a result without a
/// problem. `of` names the bytes in the message.
ParsedRecord invalid_utf8(std::string_view bytes, std::string_view of);

/// Returns whether a field of this name can only be meant to hold ids.
inline bool wants_ids(std::string_view field) { return field == "input_ids"; }

/// Returns what to say if a record lacks the wanted field: "; name one that it has, as
/// --field text". `names` are the fields that may hold a document. A field is named if it
/// is the only one, or "text", or nearly the wanted one. The text is empty without names.
std::string name_another(std::vector<std::string> names, std::string_view wanted);

/// Returns the text for messages about a field that holds a list of chat messages, and
/// what the user can do.
std::string chat_advice(std::string_view field);

/// Returns the document in a JSON line. May write to `line`.
ParsedRecord parse_json_line(std::string& line, std::string_view field);

/// Returns the document in a row of CSV.
ParsedRecord parse_csv_row(const RawRecord& record);

/// Returns a text such as "18446744073709551615 at position 3".
std::string value_at(uint64_t value, size_t position);

/// Returns the document that a list of ids, its labels and its mask describe.
ParsedRecord parse_ids(std::span<const int64_t> ids,
                       std::optional<std::span<const int64_t>> labels,
                       std::optional<std::span<const int64_t>> mask);

}  // namespace longhaul::data
