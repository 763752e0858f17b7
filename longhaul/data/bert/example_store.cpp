#include "longhaul/data/bert/example_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/data/bert/shards/shard.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kFormat = "longhaul packed examples";
constexpr const char* kPackAgain =
    "remove the directory, and the next start packs the shards again";
/// The most rows of a store. The bytes of this many rows of the largest size still fit
/// into 64 bits.
constexpr int64_t kMaxRows = int64_t{1} << 40;
constexpr size_t kMaxOrigins = 1'000'000;

template <typename Value>
Value value_at(const std::byte* from) {
  Value value;
  std::memcpy(&value, from, sizeof(Value));
  return value;
}

/// Reads what the record says of a file. Throws InputError when the file is not there in
/// full.
StoreFile file_of(const JsonFields& record, const char* name, const fs::path& dir) {
  const JsonFields fields = record.inside(record.field(name));
  StoreFile file{fields.get<std::string>("name"), fields.get<uint64_t>("bytes"),
                 fields.get<std::string>("hash")};
  const fs::path path = join_inside(dir, file.name, "data");
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || bytes != file.bytes) {
    fail_input("data", "{}: {}, but {} says {} bytes; {}", path.string(),
               error ? std::string("missing") : fmt::format("{} bytes", bytes),
               kExampleStoreRecord, file.bytes, kPackAgain);
  }
  return file;
}

void check_form(const JsonFields& fields, const ExampleStoreInfo& info) {
  const ExampleForm& form = info.form;
  const auto demand = [&](bool holds, const char* name, int64_t found) {
    if (!holds) {
      fields.fail(fmt::format("'{}' is {}, which is out of range", name, found));
    }
  };
  demand(form.token_bytes == 2 || form.token_bytes == 4, "token_bytes", form.token_bytes);
  demand(form.seq_len >= 1 && form.seq_len <= kMaxShardLength, "seq_len", form.seq_len);
  demand(form.predictions >= 1 && form.predictions <= form.seq_len, "predictions",
         form.predictions);
  demand(info.rows >= 1 && info.rows <= kMaxRows, "rows", info.rows);
  const int64_t most = form.token_bytes == 2 ? UINT16_MAX : INT32_MAX;
  demand(info.max_token_id <= most, "max_token_id", info.max_token_id);
  const uint64_t bytes = static_cast<uint64_t>(info.rows) * form.bytes();
  if (bytes != info.row_file.bytes) {
    fields.fail(fmt::format("{} rows of {} bytes need {} bytes, but {} has {}", info.rows,
                            form.bytes(), bytes, info.row_file.name,
                            info.row_file.bytes));
  }
}

}  // namespace

std::string ExampleStoreInfo::fingerprint() const {
  return hash_hex(fmt::format("examples {} {} {} {} {} {} {}", form.seq_len,
                              form.predictions, form.token_bytes, rows, max_token_id,
                              row_file.hash, hash_file.hash));
}

std::string ExampleStoreInfo::text() const {
  Json list = Json::array();
  for (const ExampleOrigin& origin : origins) {
    list.push_back(
        {{"path", origin.path}, {"bytes", origin.bytes}, {"rows", origin.rows}});
  }
  const Json json = {{"format", kFormat},
                     {"version", kExampleStoreVersion},
                     {"seq_len", form.seq_len},
                     {"predictions", form.predictions},
                     {"token_bytes", form.token_bytes},
                     {"rows", rows},
                     {"max_token_id", max_token_id},
                     {"row_file", Json(data::to_json(row_file))},
                     {"hash_file", Json(data::to_json(hash_file))},
                     {"fingerprint", fingerprint()},
                     {"tokenizer", tokenizer_fingerprint},
                     {"sources", list}};
  return json_text(json, 1) + "\n";
}

ExampleStoreInfo ExampleStoreInfo::read(const fs::path& dir) {
  const fs::path path = dir / kExampleStoreRecord;
  const Json json = read_json(path);
  const JsonFields fields(json, "data", path.string(), kPackAgain);
  if (fields.get<std::string>("format") != kFormat ||
      fields.count("version") != kExampleStoreVersion) {
    fields.fail(fmt::format("not version {} of '{}'", kExampleStoreVersion, kFormat));
  }
  ExampleStoreInfo info;
  info.form = {fields.count("seq_len"), fields.count("predictions"),
               fields.get<int>("token_bytes")};
  info.rows = fields.count("rows");
  info.max_token_id = fields.count("max_token_id");
  info.tokenizer_fingerprint = fields.get<std::string>("tokenizer");
  info.row_file = file_of(fields, "row_file", dir);
  info.hash_file = file_of(fields, "hash_file", dir);
  for (const Json& origin : fields.list("sources", kMaxOrigins)) {
    const JsonFields of = fields.inside(origin);
    info.origins.push_back(
        {of.get<std::string>("path"), of.get<uint64_t>("bytes"), of.count("rows")});
  }
  check_form(fields, info);
  const auto stored = fields.get<std::string>("fingerprint");
  if (stored != info.fingerprint()) {
    fields.fail(fmt::format("'fingerprint' is {}, but the record's values give {}",
                            stored, info.fingerprint()));
  }
  return info;
}

bool is_example_store(const fs::path& path) {
  return fs::exists(path / kExampleStoreRecord);
}

ExampleStore::ExampleStore(const fs::path& path, bool verify)
    : path_(path), info_(ExampleStoreInfo::read(path)) {
  std::shared_ptr<const ShardHashes> hashes;
  if (verify) {
    hashes = std::make_shared<ShardHashes>(
        path, info_.hash_file, ProofWords{kExampleStoreRecord, kPackAgain, ""});
  }
  rows_ = ProvedFile(path, info_.row_file, std::move(hashes));
}

void ExampleStore::fail(int64_t row, uint64_t offset, const std::string& what) const {
  const uint64_t begin = static_cast<uint64_t>(row) * info_.form.bytes();
  fail_input("data", "{}: damaged: row {}, byte {}: {}; {}",
             (path_ / info_.row_file.name).string(), row, begin + offset, what,
             kPackAgain);
}

void ExampleStore::read(int64_t row, ExampleRow& to) const {
  LH_CHECK(row >= 0 && row < info_.rows, "data", "example {} of {}", row, info_.rows);
  const ExampleForm& form = info_.form;
  const std::byte* const from =
      rows_.at(static_cast<uint64_t>(row) * form.bytes(), form.bytes());
  const auto length = int64_t{value_at<uint32_t>(from)};
  const auto masked = int64_t{value_at<uint16_t>(from + 4)};
  const auto next = value_at<uint16_t>(from + 6);  // the label and the byte that is 0
  if (length < 1 || length > form.seq_len || masked > form.predictions || next > 1) {
    fail(row, 0,
         fmt::format("{} of {} tokens, {} of {} masked positions, label {}", length,
                     form.seq_len, masked, form.predictions, next));
  }
  to.length = length;
  to.next_sentence = next;
  const uint32_t largest = read_tokens(from + form.tokens(), form.token_bytes, to.tokens);
  if (int64_t{largest} > info_.max_token_id) {
    fail(row, form.tokens(),
         fmt::format("token id {} is above the store's largest id {}", largest,
                     info_.max_token_id));
  }
  const std::byte* const bits = from + form.segments();
  for (size_t i = 0; i < to.segments.size(); ++i) {
    to.segments[i] = std::to_integer<int32_t>(bits[i / 8] >> (i % 8) & std::byte{1});
  }
  std::ranges::fill(to.labels, kIgnore);
  for (int64_t i = 0; i < masked; ++i) {
    const uint64_t place = form.positions() + static_cast<uint64_t>(i) * 2;
    const auto position = int64_t{value_at<uint16_t>(from + place)};
    if (position < 1 || position >= length) {
      fail(row, place,
           fmt::format("masked position {} in a row of {} tokens", position, length));
    }
    const uint64_t at =
        form.ids() + static_cast<uint64_t>(i) * static_cast<uint64_t>(form.token_bytes);
    int32_t& label = to.labels[static_cast<size_t>(position)];
    const uint32_t id = read_tokens(from + at, form.token_bytes, std::span(&label, 1));
    if (int64_t{id} > info_.max_token_id) {
      fail(row, at,
           fmt::format("masked id {} is above the store's largest id {}", id,
                       info_.max_token_id));
    }
  }
}

}  // namespace longhaul::data
