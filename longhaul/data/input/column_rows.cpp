#include "longhaul/data/input/column_rows.h"

#include <arrow/api.h>
#include <arrow/array/validate.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/arrow_memory.h"
#include "longhaul/data/input/parse.h"
#include "longhaul/data/input/range_reader.h"

namespace longhaul::data {
namespace {

bool is_text(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::NA:
      return true;
    case arrow::Type::DICTIONARY: {
      const auto& value = *static_cast<const arrow::DictionaryType&>(type).value_type();
      return value.id() != arrow::Type::DICTIONARY && is_text(value);
    }
    default:
      return false;
  }
}

/// Returns a type with bytes in place of text. UTF-8 is checked row by row, so that one
/// bad text does not make a whole file unreadable.
std::shared_ptr<arrow::DataType> type_as_bytes(
    const std::shared_ptr<arrow::DataType>& type) {
  switch (type->id()) {
    case arrow::Type::STRING:
      return arrow::binary();
    case arrow::Type::LARGE_STRING:
      return arrow::large_binary();
    case arrow::Type::STRING_VIEW:
      return arrow::binary_view();
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryType&>(*type);
      return arrow::dictionary(dictionary.index_type(),
                               type_as_bytes(dictionary.value_type()));
    }
    default:
      return type;
  }
}

std::shared_ptr<arrow::ArrayData> data_as_bytes(const arrow::ArrayData& data) {
  auto copy = std::make_shared<arrow::ArrayData>(data);
  copy->type = type_as_bytes(data.type);
  if (data.dictionary) copy->dictionary = data_as_bytes(*data.dictionary);
  return copy;
}

/// Returns the text of a row of an array without a dictionary.
std::string_view text_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::BINARY:
      return static_cast<const arrow::BinaryArray&>(array).GetView(row);
    case arrow::Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(row);
    default:
      return static_cast<const arrow::BinaryViewArray&>(array).GetView(row);
  }
}

/// Returns the text of a row; nothing for a null.
std::optional<std::string_view> find_text(const arrow::Array& array, int64_t row) {
  if (array.type_id() == arrow::Type::NA || array.IsNull(row)) return std::nullopt;
  if (array.type_id() != arrow::Type::DICTIONARY) return text_at(array, row);
  const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
  return find_text(*encoded.dictionary(), encoded.GetValueIndex(row));
}

template <typename List>
ListRow list_row(const arrow::Array& array, int64_t row) {
  const auto& list = static_cast<const List&>(array);
  const int64_t begin = list.value_offset(row);
  return {list.values().get(), begin, list.value_offset(row + 1) - begin};
}

/// Returns the first unsigned integer that does not fit into int64, with its position, as
/// text; empty if all integers fit.
std::string first_huge(const ListRow& row) {
  if (row.values->type_id() != arrow::Type::UINT64) return {};
  const uint64_t* const values =
      static_cast<const arrow::UInt64Array&>(*row.values).raw_values() + row.begin;
  const uint64_t* const end = values + row.length;
  const uint64_t* const found =
      std::find_if(values, end, [](uint64_t value) { return value > INT64_MAX; });
  return found == end ? std::string()
                      : value_at(*found, static_cast<size_t>(found - values));
}

/// Copies a row's integers. Returns false for a null row and a null among the integers.
/// An integer above int64 is named in `huge`.
bool take_list(const arrow::Array& array, int64_t row, std::vector<int64_t>& out,
               std::string& huge) {
  if (array.IsNull(row)) return false;
  const ListRow found = find_list(array, row);
  if (found.length == 0) return true;
  if (found.values->null_count() != 0) {
    for (int64_t i = 0; i < found.length; ++i) {
      if (found.values->IsNull(found.begin + i)) return false;
    }
  }
  huge = first_huge(found);
  out.resize(static_cast<size_t>(found.length));
  if (found.values->type_id() == arrow::Type::BOOL) {  // a mask with one bit a value
    const auto& bits = static_cast<const arrow::BooleanArray&>(*found.values);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = bits.Value(found.begin + static_cast<int64_t>(i)) ? 1 : 0;
    }
    return true;
  }
  with_integers(*found.values, found.begin, [&](const auto* values) {
    std::transform(values, values + found.length, out.begin(),
                   [](auto value) { return static_cast<int64_t>(value); });
  });
  return true;
}

std::string column_names(const arrow::Schema& schema) {
  constexpr int kMost = 20;
  std::string names;
  for (int i = 0; i < std::min(schema.num_fields(), kMost); ++i) {
    names +=
        fmt::format("{}'{}' {}", i > 0 ? ", " : "", schema.field(i)->name().substr(0, 40),
                    schema.field(i)->type()->ToString().substr(0, 60));
  }
  return names + (schema.num_fields() > kMost ? ", ..." : "");
}

/// Returns the names of the first columns that hold texts or lists of integers; only
/// those with lists if `wanted` can only be meant to hold ids.
std::vector<std::string> columns_with_documents(const arrow::Schema& schema,
                                                const std::string& wanted) {
  constexpr int kMost = 100;
  std::vector<std::string> names;
  for (int i = 0; i < std::min(schema.num_fields(), kMost); ++i) {
    const arrow::DataType& type = *schema.field(i)->type();
    const bool fits = is_integer_list(type) || (is_text(type) && !wants_ids(wanted));
    if (fits && schema.field(i)->name().size() <= 40) {
      names.push_back(schema.field(i)->name());
    }
  }
  return names;
}

/// Returns whether a column holds lists of chat messages.
bool is_chat(const arrow::DataType& type) {
  if (!arrow::is_list_like(type.id())) return false;
  const arrow::DataType& value =
      *static_cast<const arrow::BaseListType&>(type).value_type();
  if (value.id() != arrow::Type::STRUCT) return false;
  const auto& fields = static_cast<const arrow::StructType&>(value);
  return fields.GetFieldIndex("role") >= 0 || fields.GetFieldIndex("from") >= 0;
}

/// Throws InputError for a schema whose records are chats.
void refuse_chats(const arrow::Schema& schema, const fs::path& file) {
  for (const auto& field : schema.fields()) {
    if (!is_chat(*field->type())) continue;
    fail_input("data", "{}: {}", file.string(), chat_advice(field->name()));
  }
}

/// Returns the index of a column; -1 when there is none.
int find_column(const arrow::Schema& schema, const std::string& name,
                const fs::path& file) {
  const std::vector<int> found = schema.GetAllFieldIndices(name);
  if (found.size() > 1) {
    fail_input("data",
               "{}: {} columns are named '{}'; give each column a name of its own",
               file.string(), found.size(), name);
  }
  return found.empty() ? -1 : found.front();
}

int find_list_column(const arrow::Schema& schema, const std::string& name,
                     const fs::path& file, bool is_mask = false) {
  const int found = find_column(schema, name, file);
  if (found >= 0 && !is_integer_list(*schema.field(found)->type(), is_mask)) {
    fail_input("data",
               "{}: column '{}' is {}, but beside token ids this column must hold lists "
               "of integers; rename or remove it",
               file.string(), name, schema.field(found)->type()->ToString());
  }
  return found;
}

}  // namespace

std::shared_ptr<LimitedPool> make_reader_memory(uint64_t bytes) {
  return std::make_shared<LimitedPool>(bytes);
}

bool is_integer_list(const arrow::DataType& type, bool is_mask) {
  switch (type.id()) {
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST: {
      const auto value = static_cast<const arrow::BaseListType&>(type).value_type()->id();
      return arrow::is_integer(value) || (is_mask && value == arrow::Type::BOOL);
    }
    default:
      return false;
  }
}

ListRow find_list(const arrow::Array& lists, int64_t row) {
  switch (lists.type_id()) {
    case arrow::Type::LIST:
      return list_row<arrow::ListArray>(lists, row);
    case arrow::Type::LARGE_LIST:
      return list_row<arrow::LargeListArray>(lists, row);
    default:
      return list_row<arrow::FixedSizeListArray>(lists, row);
  }
}

void require(const arrow::Status& status, const fs::path& file, std::string_view where,
             const InputOptions& options) {
  if (status.ok()) return;
  require_memory(status, file);
  if (status.IsOutOfMemory()) {
    const std::string together =
        options.reader_memory == nullptr
            ? ""
            : fmt::format(
                  ", or more than {} together with what other threads read (use fewer "
                  "threads, or more memory)",
                  human_bytes(options.reader_memory->limit()));
    fail_input("data",
               "{}: {} needs more than {} of memory at once{}; write the file again with "
               "smaller row groups, pages or record batches",
               file.string(), where, human_bytes(options.max_batch_bytes), together);
  }
  fail_input("data", "{}: {} is not readable: {}; copy or download the file again",
             file.string(), where, status.message());
}

ColumnChoice::ColumnChoice(const arrow::Schema& schema, const InputOptions& options,
                           const fs::path& file) {
  if (options.chats) {
    chat = chat_columns(schema, file);
    return;
  }
  field = find_column(schema, options.field, file);
  if (field < 0) {
    refuse_chats(schema, file);
    fail_input(
        "data", "{}: no column '{}' (its columns: {}){}", file.string(), options.field,
        column_names(schema),
        name_another(columns_with_documents(schema, options.field), options.field));
  }
  const arrow::DataType& type = *schema.field(field)->type();
  ids = is_integer_list(type);
  if (!ids && !is_text(type)) {
    refuse_chats(schema, file);
    fail_input("data",
               "{}: column '{}' is {}, neither text nor lists of integers; name another "
               "column with --field",
               file.string(), options.field, type.ToString());
  }
  if (!ids) return;
  if (options.field != "labels") labels = find_list_column(schema, "labels", file);
  if (options.field != "attention_mask") {
    mask = find_list_column(schema, "attention_mask", file, true);
  }
}

std::vector<int> ColumnChoice::indices() const {
  std::vector<int> all = chat;
  for (const int index : {field, labels, mask}) {
    if (index >= 0) all.push_back(index);
  }
  std::sort(all.begin(), all.end());
  return all;
}

ColumnRows::ColumnRows(const arrow::RecordBatch& batch, const ColumnChoice& choice,
                       const InputOptions& options, const fs::path& file,
                       std::string_view where)
    : rows_(batch.num_rows()), limit_(options.max_record_bytes), ids_(choice.ids) {
  const auto take = [&](int index) -> std::shared_ptr<arrow::Array> {
    if (index < 0) return nullptr;
    const auto data = data_as_bytes(*batch.column_data(index));
    // The offsets and lengths of a file may be wrong until this check has passed.
    require(arrow::internal::ValidateArrayFull(*data), file, where, options);
    if (data->length != rows_) {
      require(arrow::Status::Invalid("its columns differ in length"), file, where,
              options);
    }
    return arrow::MakeArray(data);
  };
  for (const int index : choice.chat) {
    const auto& column = batch.column(index);
    require(column->ValidateFull(), file, where, options);
    chat_.emplace_back(batch.schema()->field(index)->name(), column);
  }
  field_ = take(choice.field);
  labels_ = take(choice.labels);
  mask_ = take(choice.mask);
}

void ColumnRows::take_chat(int64_t row, RawRecord& record) const {
  record.form = RawRecord::Form::Object;
  std::string text;
  for (const auto& [name, array] : chat_) {
    if (array->IsNull(row)) continue;
    text += text.empty() ? "{" : ",";
    text += json_text(Json(name)) + ":";
    if (!append_json(*array, row, text)) {
      record.problem = RecordProblem::BadChat;
      record.detail = fmt::format("column '{}' is {}, which JSON cannot hold", name,
                                  array->type()->ToString().substr(0, 80));
      return;
    }
    if (text.size() <= limit_) continue;
    record.problem = RecordProblem::TooLong;
    record.detail = too_long_detail(limit_);
    return;
  }
  record.bytes = text.empty() ? "{}" : text + "}";
}

void ColumnRows::take(int64_t row, RawRecord& record) const {
  if (!chat_.empty()) return take_chat(row, record);
  if (ids_) return take_ids(row, record);
  record.form = RawRecord::Form::Text;
  const auto text = find_text(*field_, row);
  if (!text || text->empty()) {
    record.problem = RecordProblem::Empty;
  } else if (text->size() > limit_) {
    record.problem = RecordProblem::TooLong;
    record.detail = too_long_detail(limit_);
  } else {
    record.bytes = *text;
  }
}

void ColumnRows::take_ids(int64_t row, RawRecord& record) const {
  record.form = RawRecord::Form::Ids;
  record.has_labels = labels_ != nullptr;
  record.has_mask = mask_ != nullptr;
  const auto longest = static_cast<int64_t>(limit_ / sizeof(int64_t));
  const auto too_long = [&](const std::shared_ptr<arrow::Array>& list) {
    return list && !list->IsNull(row) && find_list(*list, row).length > longest;
  };
  std::string huge;
  const auto refuse = [&](RecordProblem problem, std::string detail) {
    record.problem = problem;
    record.detail = std::move(detail);
  };
  if (field_->IsNull(row)) {
    record.problem = RecordProblem::Empty;
  } else if (too_long(field_) || too_long(labels_) || too_long(mask_)) {
    record.problem = RecordProblem::TooLong;
    record.detail = too_long_detail(limit_);
  } else if (!take_list(*field_, row, record.ids, huge)) {
    refuse(RecordProblem::FieldNotText, "a null among the ids");
  } else if (!huge.empty()) {
    refuse(RecordProblem::IdOutOfRange, huge);
  } else if (labels_ && !take_list(*labels_, row, record.labels, huge)) {
    refuse(RecordProblem::BadLabels, "a null");
  } else if (!huge.empty()) {
    refuse(RecordProblem::BadLabels, huge);
  } else if (mask_ && !take_list(*mask_, row, record.attention_mask, huge)) {
    refuse(RecordProblem::BadMask, "a null");
  } else if (!huge.empty()) {
    refuse(RecordProblem::BadMask, huge);
  }
}

}  // namespace longhaul::data
