#include "longhaul/data/bert/example_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/bert/pack_examples.h"
#include "tests/support/bert_examples.h"

namespace longhaul::data {
namespace {

class ExampleStoreTest : public ::testing::Test {
 protected:
  ExampleStoreTest() {
    if (hdf5_version().empty()) return;
    PackExamplesOptions options;
    // rows.bin fills two blocks of 1 MiB, each with a hash of its own.
    options.shards = {write_test_shard(dir_, "s.hdf5", test_shard(4000, 128, 20))};
    options.out = dir_ / "packed";
    options.vocab_size = 30'000;
    options.seq_len = 128;
    info_ = pack_examples(*reader_, options);
  }
  void SetUp() override {
    if (hdf5_version().empty()) GTEST_SKIP() << "a build without HDF5";
  }
  fs::path file(const char* name) const { return dir_ / "packed" / name; }
  /// Returns the error message for an examples.json that `change` has changed.
  std::string with_record(const std::function<void(Json&)>& change) {
    const std::string good = read_text(file(kExampleStoreRecord));
    Json json = parse_json(good, "");
    change(json);
    write_text_atomic(file(kExampleStoreRecord), json.dump());
    const std::string message =
        input_error([&] { const ExampleStore s(dir_ / "packed"); });
    write_text_atomic(file(kExampleStoreRecord), good);
    return message;
  }
  std::string with_record(const char* field, const Json& value) {
    return with_record([&](Json& json) { json[field] = value; });
  }
  /// Returns the error message of reading row `row` after the row is changed at `offset`.
  std::string with_row(int64_t row, uint64_t offset, uint16_t value, bool verify) {
    const std::string good = read_text(file(kExampleRows));
    std::string bytes = good;
    std::memcpy(bytes.data() + static_cast<uint64_t>(row) * info_.form.bytes() + offset,
                &value, sizeof(value));
    write_text_atomic(file(kExampleRows), bytes);
    const auto source = example_source(dir_ / "packed", 128, verify);
    TokenBatch batch;
    source->shape(batch, 1);
    source->read(0, batch, 0);  // another block is still good
    const std::string message = input_error([&] { source->read(row, batch, 0); });
    write_text_atomic(file(kExampleRows), good);
    return message;
  }

  static inline std::unique_ptr<ShardReader> reader_ = std::make_unique<ShardReader>();
  TestDirectory dir_;
  ExampleStoreInfo info_;
};

TEST_F(ExampleStoreTest, ARowHasTheDocumentedBytes) {
  EXPECT_EQ(info_.form.bytes(), 8U + 2 * 128 + 2 * 20 + 2 * 20 + 16);
  const std::string bytes = read_text(file(kExampleRows));
  EXPECT_EQ(bytes.size(), 4000 * info_.form.bytes());
  const std::string_view row = std::string_view(bytes).substr(info_.form.bytes());
  EXPECT_EQ(row.substr(0, 8), std::string_view("\x80\0\0\0\2\0\1\0", 8));
  // Ids count up from 10, so that row 1 begins with 138.
  EXPECT_EQ(row.substr(info_.form.tokens(), 4), std::string_view("\x8a\0\x8b\0", 4));
  EXPECT_EQ(row.substr(info_.form.ids(), 2), std::string_view("\x1b\0", 2));
  EXPECT_EQ(row.substr(info_.form.positions(), 6), std::string_view("\2\0\3\0\0\0", 6));
  EXPECT_EQ(row.substr(info_.form.segments(), 2), "\xaa\xaa");
}

TEST_F(ExampleStoreTest, ARecordThatIsDamagedIsRefusedWithItsField) {
  for (const char* field :
       {"format", "version", "seq_len", "predictions", "token_bytes", "rows",
        "max_token_id", "row_file", "hash_file", "fingerprint", "tokenizer", "sources"}) {
    EXPECT_HAS(with_record([&](Json& json) { json.erase(field); }),
               std::string("'") + field + "'");
  }
  for (const char* field : {"seq_len", "rows", "fingerprint", "tokenizer", "sources"}) {
    EXPECT_HAS(with_record(field, nullptr), std::string("'") + field + "'");
  }
  EXPECT_HAS(with_record("row_file", nullptr), "an object was expected");
  EXPECT_HAS(with_record("format", "longhaul token store"), "not version 1 of");
  EXPECT_HAS(with_record("version", 2), "not version 1 of");
  EXPECT_HAS(with_record("token_bytes", 3), "'token_bytes' is 3");
  EXPECT_HAS(with_record("seq_len", 0), "'seq_len' is 0");
  EXPECT_HAS(with_record("seq_len", 65537), "'seq_len' is 65537");
  EXPECT_HAS(with_record("predictions", 129), "'predictions' is 129");
  EXPECT_HAS(with_record("rows", 0), "'rows' is 0");
  EXPECT_HAS(with_record("rows", int64_t{1} << 50), "'rows' is 1125899906842624");
  EXPECT_HAS(with_record("rows", 3999),
             "3999 rows of 360 bytes need 1439640 bytes, but rows.bin has 1440000");
  EXPECT_HAS(with_record("max_token_id", 65536), "'max_token_id' is 65536");
  EXPECT_HAS(with_record("max_token_id", 7), "'fingerprint' is");
  EXPECT_HAS(with_record([](Json& json) { json["row_file"]["name"] = "../rows.bin"; }),
             "../rows.bin");
  EXPECT_HAS(with_record([](Json& json) { json["row_file"]["hash"] = "0"; }),
             "'fingerprint' is");
  write_text_atomic(file(kExampleStoreRecord), "{");
  EXPECT_HAS(input_error([&] { const ExampleStore s(dir_ / "packed"); }),
             "examples.json");
}

TEST_F(ExampleStoreTest, AFileThatIsCutOffOrMissingIsRefusedWithBothSizes) {
  for (const char* name : {kExampleRows, "hashes.json"}) {
    const std::string good = read_text(file(name));
    for (const size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      write_text_atomic(file(name), good.substr(0, size));
      EXPECT_HAS(input_error([&] { const ExampleStore s(dir_ / "packed"); }),
                 fmt::format("{}: {} bytes, but examples.json says {} bytes; remove the "
                             "directory",
                             file(name).string(), size, good.size()));
    }
    fs::remove(file(name));
    EXPECT_HAS(input_error([&] { const ExampleStore s(dir_ / "packed"); }),
               file(name).string() + ": missing");
    write_text_atomic(file(name), good);
  }
  EXPECT_EQ(ExampleStore(dir_ / "packed").info().rows, 4000);
}

TEST_F(ExampleStoreTest, AFlippedBitIsFoundWhenItsBlockIsTouched) {
  const std::string found = with_row(3500, info_.form.tokens() + 40, 4711, true);
  EXPECT_HAS(found, "rows.bin: damaged: block 1 (bytes 1048576 to 1440000) has hash");
  EXPECT_HAS(found, "hashes.json says");
  EXPECT_HAS(found, "remove the directory, and the next start packs the shards again");
  std::string hashes = read_text(file("hashes.json"));
  hashes[hashes.size() / 2] ^= 1;
  write_text_atomic(file("hashes.json"), hashes);
  const ExampleStore store(dir_ / "packed");
  std::vector<int32_t> values(3 * 128);
  const std::span all(values);
  ExampleRow row{all.first(128), all.subspan(128, 128), all.last(128)};
  const std::string of_hashes = input_error([&] { store.read(0, row); });
  EXPECT_HAS(of_hashes, "hashes.json: damaged: its hash is");
  EXPECT_HAS(of_hashes, "examples.json says");
}

TEST_F(ExampleStoreTest, UnprovedRowsAreReadWithinTheirBounds) {
  const ExampleForm& form = info_.form;
  const auto at = [&](uint64_t offset) { return 3700 * form.bytes() + offset; };
  const auto message = [&](uint64_t offset, uint16_t value) {
    return with_row(3700, offset, value, false);
  };
  EXPECT_HAS(message(0, 0), fmt::format("row 3700, byte {}: 0 of 128 tokens", at(0)));
  EXPECT_HAS(message(0, 129), "129 of 128 tokens");
  EXPECT_HAS(message(2, 1), "of 128 tokens");
  EXPECT_HAS(message(4, 21), "21 of 20 masked positions");
  EXPECT_HAS(message(6, 2), "label 2");
  EXPECT_HAS(message(6, 257), "label 257");
  EXPECT_HAS(message(form.tokens() + 2 * 127, 65535),
             fmt::format("byte {}: token id 65535 is above the store's largest id 20009",
                         at(form.tokens())));
  EXPECT_HAS(message(form.ids() + 2, 65535),
             fmt::format("byte {}: masked id 65535", at(form.ids() + 2)));
  EXPECT_HAS(message(form.positions() + 2, 0),
             fmt::format("byte {}: masked position 0 in a row of 128",
                         at(form.positions() + 2)));
  EXPECT_HAS(message(form.positions(), 128), "masked position 128 in a row of 128");
}

}  // namespace
}  // namespace longhaul::data
