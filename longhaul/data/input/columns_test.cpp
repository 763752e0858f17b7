// Tests the reading of Parquet and Arrow files that Arrow's own library writes.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/key_value_metadata.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <optional>

#include "longhaul/base/hash.h"
#include "tests/support/inputs.h"
#include "tests/support/memory_objects.h"

namespace longhaul::data {
namespace {

void expect_ok(const arrow::Status& status) {
  ASSERT_TRUE(status.ok()) << status.ToString();
}

std::string bytes_of(const std::shared_ptr<arrow::io::BufferOutputStream>& stream) {
  return stream->Finish().ValueOrDie()->ToString();
}

std::shared_ptr<arrow::io::BufferOutputStream> new_stream() {
  return arrow::io::BufferOutputStream::Create().ValueOrDie();
}

std::string as_parquet(const arrow::Table& table, int64_t group_rows = 2,
                       parquet::WriterProperties::Builder properties = {}) {
  const auto stream = new_stream();
  expect_ok(parquet::arrow::WriteTable(
      table, arrow::default_memory_pool(), stream, group_rows, properties.build(),
      parquet::ArrowWriterProperties::Builder().store_schema()->build()));
  return bytes_of(stream);
}

/// Writes a table with row groups of the given numbers of rows, one after another.
std::string as_parquet_groups(const arrow::Table& table,
                              const std::vector<int64_t>& group_rows) {
  const auto stream = new_stream();
  const auto writer = parquet::arrow::FileWriter::Open(
                          *table.schema(), arrow::default_memory_pool(), stream)
                          .ValueOrDie();
  int64_t at = 0;
  for (const int64_t rows : group_rows) {
    expect_ok(writer->WriteTable(*table.Slice(at, rows), std::max<int64_t>(rows, 1)));
    at += rows;
  }
  expect_ok(writer->Close());
  return bytes_of(stream);
}

enum class Ipc { Stream, File };

std::string as_arrow(const arrow::Table& table, Ipc form, int64_t batch_rows = 2,
                     const arrow::ipc::IpcWriteOptions& options =
                         arrow::ipc::IpcWriteOptions::Defaults()) {
  const auto stream = new_stream();
  const auto writer =
      (form == Ipc::Stream ? arrow::ipc::MakeStreamWriter(stream, table.schema(), options)
                           : arrow::ipc::MakeFileWriter(stream, table.schema(), options))
          .ValueOrDie();
  expect_ok(writer->WriteTable(table, batch_rows));
  expect_ok(writer->Close());
  return bytes_of(stream);
}

template <typename Builder>
std::shared_ptr<arrow::Array> texts(
    const std::vector<std::optional<std::string>>& values) {
  Builder builder;
  for (const auto& value : values) {
    expect_ok(value ? builder.Append(*value) : builder.AppendNull());
  }
  return builder.Finish().ValueOrDie();
}

using Lists = std::vector<std::optional<std::vector<int>>>;

template <typename Value>
std::shared_ptr<arrow::Array> lists(const Lists& rows) {
  const auto values = std::make_shared<arrow::NumericBuilder<Value>>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const auto& row : rows) {
    expect_ok(row ? builder.Append() : builder.AppendNull());
    if (!row) continue;
    for (const int value : *row) {
      expect_ok(values->Append(static_cast<typename Value::c_type>(value)));
    }
  }
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Table> table_of(
    const std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}

const std::vector<std::optional<std::string>> kTexts{"one \xC3\xA9", "", std::nullopt,
                                                     "bad \xFF", "five"};
const Records kShown{"one \xC3\xA9", "!empty", "!empty",
                     "!invalid UTF-8: byte 4 (0xff) of the value", "five"};

std::shared_ptr<arrow::Table> text_table() {
  return table_of({{"id", lists<arrow::Int64Type>({{{1}}, {{2}}, {{}}, {{4}}, {{5}}})},
                   {"text", texts<arrow::StringBuilder>(kTexts)}});
}

std::shared_ptr<arrow::Table> id_table() {
  return table_of(
      {{"input_ids",
        lists<arrow::Int32Type>({{{5, 6, 7}}, {{5, 6, 0}}, {}, {{-1}}, {{}}})},
       {"labels",
        lists<arrow::Int64Type>({{{5, -100, 7}}, {{5, 6, 0}}, {}, {{-1}}, {{}}})},
       {"attention_mask",
        lists<arrow::Int8Type>({{{1, 1, 1}}, {{1, 1, 0}}, {}, {{1}}, {{}}})}});
}
const Records kShownIds{"[5 6* 7]", "[5 6]-1", "!empty",
                        "!token id out of range: -1 at position 0", "!empty"};

TEST(Columns, ReadTextOfEveryType) {
  const TestDirectory dir;
  std::vector<std::shared_ptr<arrow::Array>> arrays{
      texts<arrow::StringBuilder>(kTexts), texts<arrow::LargeStringBuilder>(kTexts),
      texts<arrow::BinaryBuilder>(kTexts), texts<arrow::StringViewBuilder>(kTexts),
      texts<arrow::StringDictionary32Builder>(kTexts)};
  for (const auto& array : arrays) {
    const auto table = table_of({{"text", array}});
    const std::string type = array->type()->ToString();
    EXPECT_EQ(read_records(inputs_of({dir.write("a.parquet", as_parquet(*table))})),
              kShown)
        << type;
    // A file holds one dictionary for all its batches.
    const auto stream = dir.write("a.arrow", as_arrow(*table, Ipc::Stream));
    EXPECT_EQ(read_records(inputs_of({stream})), kShown) << type;
    const auto file = dir.write("b.arrow", as_arrow(*table, Ipc::File));
    EXPECT_EQ(read_records(inputs_of({file})), kShown) << type;
  }
}

TEST(Columns, ReadIdsOfEveryType) {
  const TestDirectory dir;
  const Lists rows{{{1, 2}}, {{3, 4}}, {{120, 6}}};
  const Records expected{"[1 2]", "[3 4]", "[120 6]"};
  std::vector<std::shared_ptr<arrow::Array>> arrays{
      lists<arrow::Int8Type>(rows),   lists<arrow::Int16Type>(rows),
      lists<arrow::Int32Type>(rows),  lists<arrow::Int64Type>(rows),
      lists<arrow::UInt8Type>(rows),  lists<arrow::UInt16Type>(rows),
      lists<arrow::UInt32Type>(rows), lists<arrow::UInt64Type>(rows)};
  const auto flat =
      static_cast<const arrow::ListArray&>(*lists<arrow::Int16Type>(rows)).values();
  arrays.push_back(arrow::FixedSizeListArray::FromArrays(flat, 2).ValueOrDie());
  arrow::LargeListBuilder large(arrow::default_memory_pool(),
                                std::make_shared<arrow::Int32Builder>());
  auto& values = static_cast<arrow::Int32Builder&>(*large.value_builder());
  for (const auto& row : rows) {
    expect_ok(large.Append());
    expect_ok(values.AppendValues(*row));
  }
  arrays.push_back(large.Finish().ValueOrDie());
  for (const auto& array : arrays) {
    const auto table = table_of({{"text", array}});
    const std::string type = array->type()->ToString();
    EXPECT_EQ(read_records(inputs_of({dir.write("a.parquet", as_parquet(*table))})),
              expected)
        << type;
    EXPECT_EQ(
        read_records(inputs_of({dir.write("a.arrow", as_arrow(*table, Ipc::Stream))})),
        expected)
        << type;
  }
}

std::shared_ptr<arrow::Array> flags(const Lists& rows) {
  const auto values = std::make_shared<arrow::BooleanBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const auto& row : rows) {
    expect_ok(row ? builder.Append() : builder.AppendNull());
    if (!row) continue;
    for (const int value : *row) expect_ok(values->Append(value != 0));
  }
  return builder.Finish().ValueOrDie();
}

TEST(Columns, TakeAMaskOfTrueAndFalseAsOneOfOnesAndZeros) {
  const Lists ids{{{5, 6, 7}}, {{5, 6, 0}}, {{1, 2, 3}}, {{8}}, {{9, 0, 0}}};
  const Lists mask{{{1, 1, 1}}, {{1, 1, 0}}, {{0, 1, 1}}, {{1}}, {{1, 0, 0}}};
  const auto table = table_of(
      {{"input_ids", lists<arrow::Int32Type>(ids)}, {"attention_mask", flags(mask)}});
  const auto numbers = table_of({{"input_ids", lists<arrow::Int32Type>(ids)},
                                 {"attention_mask", lists<arrow::Int8Type>(mask)}});
  const TestDirectory dir;
  const auto read = [&](const arrow::Table& of) {
    return std::pair(
        read_records(inputs_of({dir.write("a.parquet", as_parquet(of))}, "input_ids")),
        read_records(
            inputs_of({dir.write("a.arrow", as_arrow(of, Ipc::Stream))}, "input_ids")));
  };
  const Records expected{"[5 6 7]", "[5 6]-1", "[1* 2 3]", "[8]", "[9]-2"};
  EXPECT_EQ(read(*table), std::pair(expected, expected));
  EXPECT_EQ(read(*numbers), std::pair(expected, expected));
  // A list of true and false is no list of token ids.
  const auto wrong = table_of({{"input_ids", flags(mask)}});
  EXPECT_HAS(input_error([&] {
               read_records(
                   inputs_of({dir.write("b.parquet", as_parquet(*wrong))}, "input_ids"));
             }),
             "neither text nor lists of integers");
}

TEST(Columns, PassOverRowGroupsWithoutRows) {
  const TestDirectory dir;
  for (const auto& table : {text_table(), id_table()}) {
    const bool text = table->field(0)->name() == "id";
    const std::string name = text ? "text" : "input_ids";
    const Records& shown = text ? kShown : kShownIds;
    for (const std::vector<int64_t>& groups : std::vector<std::vector<int64_t>>{
             {0, 2, 0, 0, 3, 0}, {0, 0, 5}, {5, 0}, {2, 0, 3}}) {
      const auto file = dir.write("a.parquet", as_parquet_groups(*table, groups));
      EXPECT_EQ(read_records(inputs_of({file}, name)), shown) << groups.size();
      EXPECT_EQ(read_records(inputs_of({file}, name), 1), shown) << groups.size();
      const InputSet inputs(inputs_of({file}, name));
      for (const InputPart& part : inputs.parts(1)) inputs.reader_bytes(part);
    }
    const auto empty = dir.write("e.parquet", as_parquet_groups(*table, {0, 0}));
    EXPECT_EQ(read_records(inputs_of({empty}, name)), Records{});
  }
}

TEST(Columns, NameIntegersAboveInt64AsTheyAre) {
  arrow::ListBuilder builder(arrow::default_memory_pool(),
                             std::make_shared<arrow::UInt64Builder>());
  auto& values = static_cast<arrow::UInt64Builder&>(*builder.value_builder());
  expect_ok(builder.Append());
  expect_ok(values.AppendValues({5, UINT64_MAX}));
  const auto huge = builder.Finish().ValueOrDie();
  const auto plain = lists<arrow::Int32Type>({{{5, 6}}});
  const TestDirectory dir;
  const auto shown = [&](const auto& columns) {
    const auto file = dir.write("a.parquet", as_parquet(*table_of(columns)));
    return read_records(inputs_of({file}, "input_ids"));
  };
  using Named = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;
  const std::string value = "18446744073709551615 at position 1";
  EXPECT_EQ(shown(Named{{"input_ids", huge}}),
            (Records{"!token id out of range: " + value}));
  EXPECT_EQ(shown(Named{{"input_ids", plain}, {"labels", huge}}),
            (Records{"!bad labels: " + value}));
  EXPECT_EQ(shown(Named{{"input_ids", plain}, {"attention_mask", huge}}),
            (Records{"!bad attention_mask: " + value}));
}

TEST(Columns, NameTheTokensThatAreNoTargets) {
  const TestDirectory dir;
  EXPECT_EQ(read_records(inputs_of({dir.write("a.parquet", as_parquet(*id_table()))},
                                   "input_ids")),
            kShownIds);
  EXPECT_EQ(read_records(inputs_of(
                {dir.write("a.arrow", as_arrow(*id_table(), Ipc::Stream))}, "input_ids")),
            kShownIds);
}

TEST(Columns, AreReadInPartsWithTheirRows) {
  const TestDirectory dir;
  std::vector<std::optional<std::string>> values;
  for (int i = 0; i < 101; ++i) values.emplace_back("text " + std::to_string(i * i));
  for (const auto& array : {texts<arrow::StringBuilder>(values),
                            texts<arrow::StringDictionary32Builder>(values)}) {
    const auto table = table_of({{"text", array}});
    for (const auto& file : {dir.write("a.parquet", as_parquet(*table, 7)),
                             dir.write("a.arrow", as_arrow(*table, Ipc::Stream, 7)),
                             dir.write("b.arrow", as_arrow(*table, Ipc::File, 7))}) {
      const Records whole = read_records(inputs_of({file}), 1 << 30, nullptr, true);
      ASSERT_EQ(whole.size(), 101U);
      EXPECT_EQ(whole[100], "text 10000@100+-1");
      const uint64_t size = fs::file_size(file);
      for (const uint64_t about : {uint64_t{1}, size / 10, size / 3}) {
        std::vector<FinishedRange> ranges;
        EXPECT_EQ(read_records(inputs_of({file}), about, &ranges, true), whole);
        EXPECT_GT(ranges.size(), 1U) << file;
        int64_t rows = 0;
        uint64_t bytes = 0;
        std::string content = read_text(file);
        for (const FinishedRange& range : ranges) {
          rows += range.lines;
          EXPECT_EQ(range.lines, range.records);
          if (file.extension() == ".arrow") {
            EXPECT_EQ(range.hash, hash_hex(content.substr(bytes, range.stored_bytes)));
          }
          bytes += range.stored_bytes;
        }
        EXPECT_EQ(rows, 101);
        if (file.extension() == ".arrow") {
          EXPECT_EQ(bytes, size);
        }
      }
    }
  }
}

/// Returns a table of 200 KB. That is more than a reader asks for at once when it looks
/// for the footer of a file.
std::shared_ptr<arrow::Table> long_table() {
  std::vector<std::optional<std::string>> values;
  for (int i = 0; i < 3000; ++i) {
    values.emplace_back(hash_hex(std::to_string(i)) + hash_hex(std::to_string(-i)));
  }
  return table_of({{"text", texts<arrow::StringBuilder>(values)}});
}

TEST(Columns, OfObjectsAreReadAsThoseOfFiles) {
  const TestDirectory dir;
  const auto objects = std::make_shared<MemoryObjects>();
  const auto table = long_table();
  const std::pair<const char*, std::string> files[] = {
      {"a.parquet", as_parquet(*table, 500)},
      {"a.arrow", as_arrow(*table, Ipc::Stream, 500)},
      {"b.arrow", as_arrow(*table, Ipc::File, 500)}};
  for (const auto& [name, content] : files) {
    objects->put(name, content);
    InputOptions options;
    options.arguments = {std::string("s3://bucket/") + name};
    options.objects = objects;
    std::vector<FinishedRange> of_object;
    std::vector<FinishedRange> of_file;
    EXPECT_EQ(read_records(options, 60'000, &of_object),
              read_records(inputs_of({dir.write(name, content)}), 60'000, &of_file));
    ASSERT_EQ(of_object.size(), of_file.size()) << name;
    ASSERT_GT(of_object.size(), 1U) << name;
    for (size_t i = 0; i < of_file.size(); ++i) {
      EXPECT_EQ(of_object[i].hash, of_file[i].hash) << name;
      EXPECT_EQ(of_object[i].stored_bytes, of_file[i].stored_bytes) << name;
    }
  }
}

TEST(Columns, OfAnObjectThatCannotBeReadNowMayBeReadLater) {
  const auto objects = std::make_shared<MemoryObjects>();
  objects->put("a.parquet", as_parquet(*long_table(), 3000));
  InputOptions options;
  options.arguments = {"s3://bucket/a.parquet"};
  options.objects = objects;
  const InputSet inputs(options);
  int reads = 0;
  objects->before_read = [&](uint64_t) {
    if (++reads > 1) throw TemporaryError("objects", "the store is away");
  };
  EXPECT_THROW(
      {
        const auto reader = inputs.open(inputs.parts(1 << 20).at(0));
        RawRecord record;
        while (reader->next(record)) {
        }
      },
      TemporaryError);
}

TEST(Columns, ThatAreAbsentOrOfAnotherTypeAreRefusedByName) {
  const TestDirectory dir;
  const auto file = dir.write("a.parquet", as_parquet(*text_table()));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({file}, "body")); }),
             "a.parquet: no column 'body' (its columns: 'id' list");
  const auto numbers = table_of({{"text", lists<arrow::DoubleType>({{{1}}})}});
  const auto doubles = dir.write("b.arrow", as_arrow(*numbers, Ipc::Stream));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({doubles})); }),
             "b.arrow: column 'text' is list<item: double>, neither text nor lists of "
             "integers");
  const auto twice = table_of({{"text", texts<arrow::StringBuilder>({"a"})},
                               {"text", texts<arrow::StringBuilder>({"b"})}});
  const auto doubled = dir.write("c.arrow", as_arrow(*twice, Ipc::Stream));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({doubled})); }),
             "2 columns are named 'text'");
  const auto labelled = table_of({{"text", lists<arrow::Int32Type>({{{1}}})},
                                  {"labels", texts<arrow::StringBuilder>({"b"})}});
  const auto other = dir.write("d.arrow", as_arrow(*labelled, Ipc::Stream));
  EXPECT_HAS(
      input_error([&] { read_records(inputs_of({other})); }),
      "column 'labels' is string, but beside token ids this column must hold lists");
}

TEST(Columns, AboveTheMemoryLimitAreRefusedWithWhatToDo) {
  const TestDirectory dir;
  const std::string big(5 << 20, 'x');
  const auto table = table_of({{"text", texts<arrow::StringBuilder>({big, big})}});
  parquet::WriterProperties::Builder packed;
  packed.compression(parquet::Compression::GZIP);
  auto ipc = arrow::ipc::IpcWriteOptions::Defaults();
  ipc.codec = arrow::util::Codec::Create(arrow::Compression::ZSTD).ValueOrDie();
  for (const auto& file : {dir.write("a.parquet", as_parquet(*table, 2, packed)),
                           dir.write("a.arrow", as_arrow(*table, Ipc::Stream, 2, ipc)),
                           dir.write("b.arrow", as_arrow(*table, Ipc::Stream, 2))}) {
    InputOptions options = inputs_of({file});
    options.max_batch_bytes = 4 << 20;
    const std::string message = input_error([&] { read_records(options); });
    EXPECT_HAS(message, file.string());
    EXPECT_HAS(message, "needs more than 4.2 MB of memory at once");
    options.max_batch_bytes = 64 << 20;
    EXPECT_EQ(read_records(options), (Records{big, big}));
  }
}

TEST(Columns, ReadersTellFromTheMetadataWhatTheyWillHold) {
  const TestDirectory dir;
  const auto column = [](size_t bytes) {
    return texts<arrow::StringBuilder>(
        std::vector<std::optional<std::string>>(64, std::string(bytes, 'x')));
  };
  const auto table =
      table_of({{"text", column(size_t{16} << 10)}, {"other", column(size_t{4} << 10)}});
  parquet::WriterProperties::Builder plain;
  plain.disable_dictionary();
  plain.compression(parquet::Compression::UNCOMPRESSED);
  constexpr uint64_t kKiB = 1024;
  constexpr double kBuffers = 32 * 1024;
  const auto bytes = [&](const fs::path& path, InputRange range,
                         const std::string& field) {
    const InputSet inputs(inputs_of({path}, field));
    return static_cast<double>(inputs.reader_bytes({{range}, 0}) / kKiB);
  };
  const fs::path one = dir.write("one.parquet", as_parquet(*table, 64, plain));
  const fs::path many = dir.write("many.parquet", as_parquet(*table, 4, plain));
  // The estimate is three times a row group's column: the stored, the unpacked and the
  // decoded pages.
  EXPECT_NEAR(bytes(one, {}, "text") - kBuffers, 3 * 1024, 16);
  EXPECT_NEAR(bytes(one, {}, "other") - kBuffers, 3 * 256, 16);
  EXPECT_NEAR(bytes(many, {}, "text") - kBuffers, 3 * 64, 8);
  const fs::path batches = dir.write("a.arrow", as_arrow(*table, Ipc::Stream, 8));
  EXPECT_NEAR(bytes(batches, {}, "text") - kBuffers, 4 * 160, 24);
  EXPECT_NEAR(bytes(batches, {0, 1, 2}, "text") - kBuffers, 4 * 160, 24);
  InputOptions least = inputs_of({one});
  least.max_batch_bytes = uint64_t{16} << 20;
  EXPECT_EQ(InputSet(least).reader_bytes({{{}}, 0}), least.max_batch_bytes);
  const fs::path lines = dir.write("a.jsonl", "{}\n");
  EXPECT_EQ(bytes(lines, {}, "text"), static_cast<double>(kMaxRecordBytes / kKiB));
}

TEST(Columns, ReadersThatHoldTooMuchTogetherAreRefused) {
  const TestDirectory dir;
  const std::string big(size_t{4} << 20, 'x');
  const auto table = table_of({{"text", texts<arrow::StringBuilder>({big, big})}});
  InputOptions options =
      inputs_of({dir.write("a.arrow", as_arrow(*table, Ipc::Stream, 2)),
                 dir.write("b.arrow", as_arrow(*table, Ipc::Stream, 2))});
  options.reader_memory = make_reader_memory(uint64_t{25} << 20);
  EXPECT_EQ(read_records(options), (Records{big, big, big, big}));
  options.reader_memory = make_reader_memory(uint64_t{25} << 19);
  // Here the readers are open one after the other, so that each of them fits the limit.
  EXPECT_EQ(read_records(options), (Records{big, big, big, big}));
  const InputSet inputs(options);
  const auto first = inputs.open({{{0, 0, InputRange::kToEnd}}, 0});
  const auto second = inputs.open({{{1, 0, InputRange::kToEnd}}, 0});
  RawRecord record;
  ASSERT_TRUE(first->next(record));
  const std::string message = input_error([&] { second->next(record); });
  EXPECT_HAS(message, "b.arrow");
  EXPECT_HAS(message, "more than 13.1 MB together with what other threads read");
}

/// Reads a file to the end. An error must name the file.
void read_hostile(const TestDirectory& dir, const std::string& name,
                  const std::string& content, const std::string& field, bool must_fail) {
  InputOptions options = inputs_of({dir.write(name, content)}, field);
  options.max_batch_bytes = uint64_t{64} << 20;
  try {
    read_records(options);
    EXPECT_FALSE(must_fail) << name << " of " << content.size() << " bytes was read";
  } catch (const InputError& error) {
    EXPECT_HAS(error.what(), name);
  }
}

struct Hostile {
  std::string name;
  std::string content;
  std::string field;
};

std::vector<Hostile> hostile_files() {
  parquet::WriterProperties::Builder packed;
  packed.compression(parquet::Compression::SNAPPY)
      ->data_page_version(parquet::ParquetDataPageVersion::V2);
  auto ipc = arrow::ipc::IpcWriteOptions::Defaults();
  ipc.codec = arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME).ValueOrDie();
  return {{"a.parquet", as_parquet(*text_table()), "text"},
          {"b.parquet", as_parquet(*id_table(), 2, packed), "input_ids"},
          {"a.arrow", as_arrow(*text_table(), Ipc::Stream), "text"},
          {"b.arrow", as_arrow(*id_table(), Ipc::File, 2, ipc), "input_ids"}};
}

TEST(Columns, TruncatedAnywhereAreRefusedByName) {
  const TestDirectory dir;
  for (const Hostile& file : hostile_files()) {
    for (size_t size = 0; size < file.content.size(); size += 1 + size % 5) {
      read_hostile(dir, file.name, file.content.substr(0, size), file.field, true);
    }
  }
}

TEST(Columns, WithAnyByteFlippedAreReadOrRefusedByName) {
  const TestDirectory dir;
  for (const Hostile& file : hostile_files()) {
    for (size_t at = 0; at < file.content.size(); ++at) {
      std::string content = file.content;
      content[at] = static_cast<char>(content[at] ^ (1 << at % 8));
      read_hostile(dir, file.name, content, file.field, false);
    }
  }
}

TEST(Columns, WithChecksumsRefuseEveryFlippedByteOfAPage) {
  const TestDirectory dir;
  parquet::WriterProperties::Builder checked;
  checked.enable_page_checksum()->disable_dictionary()->compression(
      parquet::Compression::UNCOMPRESSED);
  const auto table =
      table_of({{"text", texts<arrow::StringBuilder>({"some words here"})}});
  const std::string content = as_parquet(*table, 2, checked);
  const size_t at = content.find("some words here");
  ASSERT_NE(at, std::string::npos);
  for (size_t i = at; i < at + 15; ++i) {
    std::string flipped = content;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    read_hostile(dir, "a.parquet", flipped, "text", true);
  }
}

/// Replaces the 32-bit offsets `from` of a file by `to`.
std::string with_offsets(std::string content, const std::vector<int32_t>& from,
                         const std::vector<int32_t>& to) {
  const auto bytes = [](const std::vector<int32_t>& offsets) {
    return std::string(reinterpret_cast<const char*>(offsets.data()),
                       offsets.size() * sizeof(int32_t));
  };
  const size_t at = content.find(bytes(from));
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? content
                                 : content.replace(at, bytes(to).size(), bytes(to));
}

TEST(Columns, WithOffsetsOutsideTheirDataAreRefused) {
  const TestDirectory dir;
  const auto text = table_of({{"text", texts<arrow::StringBuilder>({"aaaaa", "bbbbb"})}});
  const auto ids = table_of({{"text", lists<arrow::Int32Type>({{{1, 2}}, {{3}}})}});
  for (const std::vector<int32_t>& to :
       std::vector<std::vector<int32_t>>{{0, 5, 100'000}, {0, 5, -1}, {0, 9, 5}}) {
    read_hostile(dir, "a.arrow",
                 with_offsets(as_arrow(*text, Ipc::Stream), {0, 5, 10}, to), "text",
                 true);
    read_hostile(dir, "b.arrow", with_offsets(as_arrow(*ids, Ipc::Stream), {0, 2, 3}, to),
                 "text", true);
  }
}

TEST(Columns, WithAStreamThatStopsBetweenBatchesAreRefused) {
  const TestDirectory dir;
  const std::string stream = as_arrow(*text_table(), Ipc::Stream);
  // The end-of-stream mark has eight bytes.
  const auto cut = dir.write("a.arrow", stream.substr(0, stream.size() - 8));
  EXPECT_HAS(input_error([&] { read_records(inputs_of({cut})); }),
             "a.arrow: Arrow data without the mark of its end: the file is truncated");
  const auto joined = dir.write("b.arrow", stream + stream);
  EXPECT_HAS(input_error([&] { read_records(inputs_of({joined})); }),
             "bytes after the end of the Arrow data");
}

}  // namespace
}  // namespace longhaul::data
