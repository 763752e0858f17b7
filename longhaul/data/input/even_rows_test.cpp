// Tests the counting of rows by the headers of the messages of Arrow files alone.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/json/from_string.h>
#include <arrow/util/compression.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/input/range_reader.h"
#include "tests/support/data_files.h"

namespace longhaul::data {
namespace {

struct Column {
  std::string name;
  std::shared_ptr<arrow::DataType> type;
  std::string rows;  ///< as JSON
};

enum class Form { Stream, File, Compressed };

/// Writes a file with two rows in each record batch. Returns what even_arrow_rows() finds
/// if each row of the column "ids" must have two values.
std::optional<EvenRows> count(const std::vector<Column>& columns,
                              Form form = Form::Stream) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const Column& column : columns) {
    fields.push_back(arrow::field(column.name, column.type));
    arrays.push_back(
        arrow::json::ArrayFromJSONString(column.type, column.rows).ValueOrDie());
  }
  const auto schema = arrow::schema(fields);
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  if (form == Form::Compressed) {
    options.codec = arrow::util::Codec::Create(arrow::Compression::ZSTD).ValueOrDie();
  }
  const auto stream = arrow::io::BufferOutputStream::Create().ValueOrDie();
  const auto writer =
      (form == Form::File ? arrow::ipc::MakeFileWriter(stream, schema, options)
                          : arrow::ipc::MakeStreamWriter(stream, schema, options))
          .ValueOrDie();
  EXPECT_TRUE(writer->WriteTable(*arrow::Table::Make(schema, arrays), 2).ok());
  EXPECT_TRUE(writer->Close().ok());
  const TestDirectory dir;
  InputFile file;
  file.path = dir.write("a.arrow", stream->Finish().ValueOrDie()->ToString());
  file.stored_bytes = fs::file_size(file.path);
  file.format = InputFormat::Arrow;
  InputOptions input;
  input.field = "ids";
  return even_arrow_rows(file, input, {"labels"}, 2);
}

const auto kList = arrow::list(arrow::int32());
const Column kIds{"ids", kList, "[[1, 2], [3, 4], [5, 6]]"};

TEST(EvenRows, AreCountedWhateverLiesBesideThem) {
  const auto nested = arrow::struct_(
      {arrow::field("a", arrow::list(arrow::utf8())), arrow::field("b", arrow::int8())});
  const auto plain = count({kIds});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->rows, 3);
  const std::vector<Column> before = {
      {"a", nested, R"([{"a": ["x", "y"], "b": 1}, null, {"a": [], "b": null}])"},
      {"b", arrow::map(arrow::utf8(), arrow::int8()), R"([[["k", 1]], [], null])"},
      {"c", arrow::fixed_size_list(arrow::float32(), 3), "[[1, 2, 3], null, [4, 5, 6]]"},
      {"d", arrow::dictionary(arrow::int8(), arrow::utf8()), R"(["x", "y", "x"])"}};
  for (const Column& column : before) {
    const auto found = count({column, kIds});
    ASSERT_TRUE(found) << column.name;
    EXPECT_EQ(found->rows, 3) << column.name;
    EXPECT_EQ(found->columns, plain->columns) << column.name;
  }
}

TEST(EvenRows, MayBeListsOfAnyKind) {
  for (const auto& type :
       {arrow::large_list(arrow::uint16()), arrow::fixed_size_list(arrow::int64(), 2)}) {
    const auto found = count({{"ids", type, kIds.rows}});
    ASSERT_TRUE(found) << type->ToString();
    EXPECT_EQ(found->rows, 3) << type->ToString();
  }
  EXPECT_EQ(count({{"ids", kList, "[]"}})->rows, 0);
}

TEST(EvenRows, TellFilesWithLabelsFromThoseWithout) {
  const auto found = count({kIds, {"labels", kList, kIds.rows}});
  ASSERT_TRUE(found);
  EXPECT_NE(found->columns, count({kIds})->columns);
}

TEST(EvenRows, AreNoneWhereTheFramingShowsAnother) {
  EXPECT_FALSE(count({{"other", kList, kIds.rows}}));
  EXPECT_FALSE(count({{"ids", arrow::list(arrow::float32()), kIds.rows}}));
  EXPECT_FALSE(count({{"ids", kList, "[[1, 2], [3, 4], [5]]"}}));
  EXPECT_FALSE(count({{"ids", kList, "[[1, 2], [3, null], [5, 6]]"}}));
  EXPECT_FALSE(count({{"ids", kList, "[[1, 2], null, [5, 6]]"}}));
  EXPECT_FALSE(
      count({{"ids", arrow::fixed_size_list(arrow::int32(), 2), "[[1, 2], null]"}}));
  EXPECT_FALSE(count({kIds, {"labels", kList, "[[1, 2], [3, 4], [5, 6, 7]]"}}));
  EXPECT_FALSE(count({kIds, {"labels", arrow::int32(), "[1, 2, 3]"}}));
  EXPECT_FALSE(count({kIds}, Form::File));
  EXPECT_FALSE(count({kIds}, Form::Compressed));
}

}  // namespace
}  // namespace longhaul::data
