// Rows of Parquet and Arrow files as the JSON of chats.
#include <arrow/api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/input/column_rows.h"

namespace longhaul::data {
namespace {

template <typename Array>
void append_text(const arrow::Array& array, int64_t row, std::string& out) {
  out += json_text(Json(std::string(static_cast<const Array&>(array).GetView(row))));
}

template <typename List>
bool append_list(const arrow::Array& array, int64_t row, std::string& out) {
  const auto& list = static_cast<const List&>(array);
  const int64_t end = list.value_offset(row + 1);
  out += '[';
  for (int64_t i = list.value_offset(row); i < end; ++i) {
    if (out.back() != '[') out += ',';
    if (!append_json(*list.values(), i, out)) return false;
  }
  out += ']';
  return true;
}

bool append_struct(const arrow::Array& array, int64_t row, std::string& out) {
  const auto& object = static_cast<const arrow::StructArray&>(array);
  out += '{';
  for (int i = 0; i < object.num_fields(); ++i) {
    const auto& member = object.field(i);
    if (member->type_id() == arrow::Type::NA || member->IsNull(row)) continue;
    if (out.back() != '{') out += ',';
    out += json_text(Json(object.type()->field(i)->name())) + ":";
    if (!append_json(*member, row, out)) return false;
  }
  out += '}';
  return true;
}

bool append_float(double value, std::string& out) {
  if (!std::isfinite(value)) return false;
  out += json_text(Json(value));
  return true;
}

}  // namespace

std::vector<int> chat_columns(const arrow::Schema& schema, const fs::path& file) {
  constexpr std::array kNames = {"messages",    "conversations",
                                 "prompt",      "completion",
                                 "chosen",      "rejected",
                                 "instruction", "input",
                                 "output",      "system",
                                 "history",     "tools",
                                 "documents",   "chat_template_kwargs"};
  std::vector<int> found;
  for (int i = 0; i < schema.num_fields(); ++i) {
    const std::string& name = schema.field(i)->name();
    if (std::ranges::find(kNames, name) != kNames.end()) found.push_back(i);
  }
  if (found.empty()) {
    fail_input("data",
               "{}: no column of a chat, such as 'messages', 'conversations', "
               "'instruction', 'prompt' or 'chosen' (its columns: {})",
               file.string(), schema.ToString().substr(0, 300));
  }
  return found;
}

bool append_json(const arrow::Array& array, int64_t row, std::string& out) {
  using arrow::Type;
  if (array.type_id() == Type::NA || array.IsNull(row)) {
    out += "null";
    return true;
  }
  if (arrow::is_integer(array.type_id())) {
    with_integers(array, row, [&](const auto* value) { out += std::to_string(*value); });
    return true;
  }
  switch (array.type_id()) {
    case Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
      return true;
    case Type::FLOAT:
      return append_float(static_cast<const arrow::FloatArray&>(array).Value(row), out);
    case Type::DOUBLE:
      return append_float(static_cast<const arrow::DoubleArray&>(array).Value(row), out);
    case Type::STRING:
      append_text<arrow::StringArray>(array, row, out);
      return true;
    case Type::LARGE_STRING:
      append_text<arrow::LargeStringArray>(array, row, out);
      return true;
    case Type::STRING_VIEW:
      append_text<arrow::StringViewArray>(array, row, out);
      return true;
    case Type::DICTIONARY: {
      const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
      return append_json(*encoded.dictionary(), encoded.GetValueIndex(row), out);
    }
    case Type::LIST:
      return append_list<arrow::ListArray>(array, row, out);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, row, out);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, row, out);
    case Type::STRUCT:
      return append_struct(array, row, out);
    default:
      return false;
  }
}

}  // namespace longhaul::data
