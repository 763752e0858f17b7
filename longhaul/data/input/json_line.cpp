#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/data/input/json_members.h"
#include "longhaul/data/input/parse.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMaxJsonDepth = 64;
constexpr size_t kSmallestCapacity = size_t{1} << 16;
/// The largest capacity that a parser keeps, since a parser holds several times its
/// longest line. After a longer line its memory is freed.
constexpr size_t kLargestKeptCapacity = size_t{4} << 20;
static_assert(kParserPadding >= simdjson::SIMDJSON_PADDING);

std::string field_names(const dom::object& object) {
  constexpr int kMost = 8;
  std::string names;
  int count = 0;
  for (const dom::key_value_pair& entry : object) {
    if (++count > kMost) return names + ", ...";
    names += fmt::format("{}'{}'", count > 1 ? ", " : "", entry.key.substr(0, 40));
  }
  return names.empty() ? "none" : names;
}

/// Returns whether a value may be a list of token ids.
bool may_be_ids(const dom::element& value) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS) return false;
  return array.size() == 0 || array.at(0).is_number();
}

/// Returns what a field that holds a list of objects means; None for other fields.
RecordProblem problem_of_objects(const dom::element& value) {
  dom::array array;
  dom::object first;
  if (value.get(array) != simdjson::SUCCESS || array.size() == 0 ||
      array.at(0).get(first) != simdjson::SUCCESS) {
    return RecordProblem::None;
  }
  const bool chat = first["role"].error() == simdjson::SUCCESS ||
                    first["from"].error() == simdjson::SUCCESS;
  return chat ? RecordProblem::Chat : RecordProblem::FieldMissing;
}

/// Returns the result for a record without a text of its own, whose field `key` is a list
/// of objects: a chat, or all records of a file.
ParsedRecord objects_in(std::string_view key, RecordProblem problem,
                        std::string_view wanted) {
  if (problem == RecordProblem::Chat) return broken(problem, chat_advice(key));
  return broken(
      problem,
      fmt::format("'{}'; '{}' is a list of objects: write each of them as a line "
                  "of its own, for example with `jq -c '.\"{}\"[]'`",
                  wanted, key, key));
}

/// Returns the names of the first fields that hold a text or a list of ids; only those
/// with lists if `wanted` can only be meant to hold ids.
std::vector<std::string> fields_with_documents(const dom::object& object,
                                               std::string_view wanted) {
  constexpr size_t kMost = 20;
  std::vector<std::string> names;
  for (const dom::key_value_pair& entry : object) {
    const bool fits =
        may_be_ids(entry.value) || (entry.value.is_string() && !wants_ids(wanted));
    if (fits && entry.key.size() <= 40) names.emplace_back(entry.key);
    if (names.size() == kMost) break;
  }
  return names;
}

/// Copies a list of integers. Returns false for anything but a list of integers. A mask
/// may also be a list of true and false. `huge` receives a text about an integer above
/// int64.
bool take_integers(const dom::element& value, std::vector<int64_t>& out,
                   std::string& huge, bool is_mask = false) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS) return false;
  for (const dom::element item : array) {
    int64_t number = 0;
    bool flag = false;
    if (is_mask && item.get(flag) == simdjson::SUCCESS) {
      number = flag ? 1 : 0;
    } else if (item.type() == dom::element_type::UINT64) {
      huge = value_at(item.get_uint64().value_unsafe(), out.size());
      return true;
    } else if (item.get(number) != simdjson::SUCCESS) {
      return false;
    }
    out.push_back(number);
  }
  return true;
}

/// The members of an object that are read, and how often each member occurs.
struct Members {
  dom::element value;
  dom::element labels;
  dom::element mask;
  int times = 0;
  int label_times = 0;
  int mask_times = 0;
};

Members find_members(const dom::object& object, std::string_view field) {
  Members found;
  for (const dom::key_value_pair& entry : object) {
    if (entry.key == field) {
      found.value = entry.value;
      ++found.times;
    } else if (entry.key == "labels") {
      found.labels = entry.value;
      ++found.label_times;
    } else if (entry.key == "attention_mask") {
      found.mask = entry.value;
      ++found.mask_times;
    }
  }
  return found;
}

ParsedRecord take_ids(const Members& members, std::string_view field) {
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;
  std::vector<int64_t> mask;
  std::string huge;
  if (!take_integers(members.value, ids, huge)) {
    return broken(RecordProblem::FieldNotText,
                  fmt::format("'{}' is a list, but not of integers", field));
  }
  if (!huge.empty()) return broken(RecordProblem::IdOutOfRange, huge);
  if (members.label_times > 1 || members.mask_times > 1) {
    return broken(RecordProblem::FieldTwice,
                  members.mask_times > 1 ? "'attention_mask'" : "'labels'");
  }
  const bool has_labels = members.label_times == 1;
  const bool has_mask = members.mask_times == 1;
  if (has_labels && !take_integers(members.labels, labels, huge)) {
    return broken(RecordProblem::BadLabels, "not a list of integers");
  }
  if (!huge.empty()) return broken(RecordProblem::BadLabels, huge);
  if (has_mask && !take_integers(members.mask, mask, huge, true)) {
    return broken(RecordProblem::BadMask, "not a list of integers or of true and false");
  }
  if (!huge.empty()) return broken(RecordProblem::BadMask, huge);
  using Optional = std::optional<std::span<const int64_t>>;
  return parse_ids(ids, has_labels ? Optional(labels) : std::nullopt,
                   has_mask ? Optional(mask) : std::nullopt);
}

ParsedRecord take_field(const dom::object& object, std::string_view field) {
  const Members members = find_members(object, field);
  if (members.times == 0) {
    for (const dom::key_value_pair& entry : object) {
      const RecordProblem problem = problem_of_objects(entry.value);
      if (problem != RecordProblem::None) return objects_in(entry.key, problem, field);
    }
    return broken(RecordProblem::FieldMissing,
                  fmt::format("'{}' (its fields: {}){}", field, field_names(object),
                              name_another(fields_with_documents(object, field), field)));
  }
  if (members.times > 1)
    return broken(RecordProblem::FieldTwice, fmt::format("'{}'", field));
  if (members.value.is_null()) return broken(RecordProblem::Empty);
  if (const RecordProblem problem = problem_of_objects(members.value);
      problem != RecordProblem::None) {
    return objects_in(field, problem, field);
  }
  if (members.value.is_array()) return take_ids(members, field);
  std::string_view text;
  if (members.value.get(text) != simdjson::SUCCESS) {
    return broken(RecordProblem::FieldNotText, fmt::format("'{}'", field));
  }
  if (text.empty()) return broken(RecordProblem::Empty);
  ParsedRecord parsed;
  parsed.text = text;
  return parsed;
}

/// Returns a key without its quotes; nothing if the key is no valid text, such as a lone
/// surrogate.
std::optional<std::string> decoded(std::string_view key) {
  if (key.find('\\') == std::string_view::npos) {
    return std::string(key.substr(1, key.size() - 2));
  }
  dom::parser parser;
  std::string_view text;
  if (parser.parse(key.data(), key.size(), true).get(text) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return std::string(text);
}

/// Returns the object of a line with null in place of each value that is not read, since
/// only the values that are read must be valid. Returns nothing if the line is no object
/// at all.
std::optional<std::string> without_the_rest(std::string_view line,
                                            std::string_view field) {
  const auto members = split_members(line);
  if (!members) return std::nullopt;
  std::vector<std::optional<std::string>> names;
  bool ids = false;
  for (const RawMember& member : *members) {
    names.push_back(decoded(member.key));
    ids = ids || (names.back() == field && member.value.starts_with('['));
  }
  std::string out = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i]) continue;
    const bool beside = ids && (names[i] == "labels" || names[i] == "attention_mask");
    const bool wanted = names[i] == field || beside;
    out += out.size() > 1 ? "," : "";
    out += (*members)[i].key;
    out += ':';
    out += wanted ? (*members)[i].value : "null";
  }
  return out + "}";
}

/// Returns true for an error that may come from a value that is not read.
bool may_be_of_the_rest(simdjson::error_code error) {
  using namespace simdjson;
  return error == NUMBER_ERROR || error == STRING_ERROR || error == DEPTH_ERROR ||
         error == TAPE_ERROR || error == N_ATOM_ERROR;
}

/// Returns the names of the members that are read, for messages.
std::string fields_read(std::string_view field) {
  return fmt::format("in '{}' (or the 'labels' and 'attention_mask' of ids)", field);
}

/// Returns what is wrong with a line that is no JSON.
std::string words_of(simdjson::error_code error, std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) {
    return "a byte order mark stands before the object, as where files were joined; "
           "remove it from all lines, for example with `sed 's/^\\xEF\\xBB\\xBF//'`";
  }
  if (error == simdjson::STRING_ERROR) {
    return "a string that is no text: half of a surrogate pair (\\ud800 to \\udfff "
           "alone), or a wrong escape";
  }
  return simdjson::error_message(error);
}

ParsedRecord parse_with(dom::parser& parser, std::string& line, std::string_view field,
                        bool again = false) {
  if (parser.max_depth() != kMaxJsonDepth || parser.capacity() < line.size()) {
    const auto error =
        parser.allocate(std::max(line.size(), kSmallestCapacity), kMaxJsonDepth);
    LH_CHECK(error == simdjson::SUCCESS, "data", "no memory for a line of {} bytes",
             line.size());
  }
  dom::element root;
  const auto error = parser.parse(line.data(), line.size(), false).get(root);
  if (!again && may_be_of_the_rest(error)) {
    if (auto rest = without_the_rest(line, field)) {
      rest->reserve(rest->size() + simdjson::SIMDJSON_PADDING);
      return parse_with(parser, *rest, field, /*again=*/true);
    }
  }
  if (error != simdjson::SUCCESS) {
    ParsedRecord utf8 = invalid_utf8(line, "line");
    if (utf8.problem != RecordProblem::None) return utf8;
    return broken(RecordProblem::InvalidJson,
                  fmt::format("{}{}", again ? fields_read(field) + ": " : "",
                              words_of(error, line)));
  }
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return broken(RecordProblem::NotAnObject);
  return take_field(object, field);
}

}  // namespace

ParsedRecord parse_json_line(std::string& line, std::string_view field) {
  // Each thread keeps a parser, so that its buffers are not allocated for each line.
  thread_local auto parser = std::make_unique<dom::parser>(kMaxRecordBytes + 64);
  line.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  ParsedRecord parsed = parse_with(*parser, line, field);
  if (parser->capacity() > kLargestKeptCapacity) {
    parser = std::make_unique<dom::parser>(kMaxRecordBytes + 64);
  }
  return parsed;
}

}  // namespace longhaul::data
