#include "longhaul/data/bert/bert_record.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {
namespace {

constexpr const char* kFormat = "longhaul BERT examples";
constexpr size_t kMaxShards = 1'000'000;

JsonFields record_fields(const Json& json, const fs::path& file) {
  return {json, "data", file.string(), "build the examples again"};
}

}  // namespace

Json BertShardInfo::to_json() const {
  return {{"name", name},
          {"rows", rows},
          {"bytes", bytes},
          {"hash", hash},
          {"counts", counts.to_json()}};
}

BertShardInfo BertShardInfo::from_json(const Json& json, const fs::path& file) {
  const JsonFields fields = record_fields(json, file);
  BertShardInfo info;
  info.name = fields.get<std::string>("name");
  info.rows = fields.count("rows");
  info.bytes = fields.get<uint64_t>("bytes");
  info.hash = fields.get<std::string>("hash");
  info.counts = ExampleCounts::from_json(fields.inside(fields.field("counts")));
  return info;
}

std::string BertRecord::text() const {
  Json list = Json::array();
  for (const BertShardInfo& shard : shards) list.push_back(shard.to_json());
  const Json json = {{"format", kFormat}, {"version", kVersion},
                     {"plan", plan},      {"reading", reading},
                     {"shards", list},    {"counts", counts.to_json()}};
  return json_text(json, 1) + "\n";
}

BertRecord BertRecord::read(const fs::path& dir) {
  const fs::path path = dir / kBertRecordName;
  const Json json = read_json(path);
  const JsonFields fields = record_fields(json, path);
  if (fields.get<std::string>("format") != kFormat ||
      fields.count("version") != kVersion) {
    fields.fail(fmt::format("not version {} of '{}'", kVersion, kFormat));
  }
  BertRecord record;
  record.plan = fields.field("plan");
  record.reading = fields.field("reading");
  record.counts = ExampleCounts::from_json(fields.inside(fields.field("counts")));
  const Json& shards = fields.list("shards", kMaxShards);
  if (shards.empty()) fields.fail("lists no shards");
  for (const Json& shard : shards) {
    record.shards.push_back(BertShardInfo::from_json(shard, path));
  }
  return record;
}

void check_hash(const fs::path& shard, const BertShardInfo& info) {
  const std::string found = hashed_file(shard).hash;
  if (found == info.hash) return;
  fail_input("data",
             "{}: its hash is {}, but {} says {}; the file is damaged, copy it again",
             shard.string(), found, kBertRecordName, info.hash);
}

void check_recorded_hash(const fs::path& shard) {
  const fs::path dir = shard.parent_path();
  if (!fs::exists(dir / kBertRecordName)) return;
  for (const BertShardInfo& info : BertRecord::read(dir).shards) {
    if (info.name == shard.filename()) return check_hash(shard, info);
  }
}

void check_bert_directory(const fs::path& dir) {
  if (!fs::exists(dir / kBertRecordName)) return;
  for (const BertShardInfo& shard : BertRecord::read(dir).shards) {
    const fs::path path = join_inside(dir, shard.name, "data");
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error || bytes != shard.bytes) {
      fail_input("data", "{}: {}, but {} says {} bytes; copy the whole directory again",
                 path.string(),
                 error ? std::string("missing") : fmt::format("{} bytes", bytes),
                 kBertRecordName, shard.bytes);
    }
  }
}

}  // namespace longhaul::data
