#include "longhaul/data/bert/bert_record.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::data {
namespace {

constexpr const char* kFormat = "longhaul BERT examples";
constexpr size_t kMaxShards = 1'000'000;

template <typename Value>
Value field(const Json& json, const char* name) {
  try {
    return json.at(name).get<Value>();
  } catch (const Json::exception& error) {
    throw InputError("data", fmt::format("a record of BERT examples is damaged: field "
                                         "'{}': {}; build them again",
                                         name, error.what()));
  }
}

}  // namespace

Json BertShardInfo::to_json() const {
  return {{"name", name},
          {"rows", rows},
          {"bytes", bytes},
          {"hash", hash},
          {"counts", counts.to_json()}};
}

BertShardInfo BertShardInfo::from_json(const Json& json) {
  BertShardInfo info;
  info.name = field<std::string>(json, "name");
  info.rows = field<int64_t>(json, "rows");
  info.bytes = field<uint64_t>(json, "bytes");
  info.hash = field<std::string>(json, "hash");
  info.counts = ExampleCounts::from_json(field<Json>(json, "counts"));
  return info;
}

std::string BertRecord::text() const {
  Json list = Json::array();
  for (const BertShardInfo& shard : shards) list.push_back(shard.to_json());
  const Json json = {{"format", kFormat}, {"version", kVersion},
                     {"plan", plan},      {"reading", reading},
                     {"shards", list},    {"counts", counts.to_json()}};
  return json.dump(1) + "\n";
}

BertRecord BertRecord::read(const fs::path& dir) {
  const fs::path path = dir / kBertRecordName;
  const Json json = read_json(path);
  if (field<std::string>(json, "format") != kFormat ||
      field<int64_t>(json, "version") != kVersion) {
    throw InputError("data", fmt::format("{}: not version {} of '{}'; build the examples "
                                         "again",
                                         path.string(), kVersion, kFormat));
  }
  BertRecord record;
  record.plan = field<Json>(json, "plan");
  record.reading = field<Json>(json, "reading");
  record.counts = ExampleCounts::from_json(field<Json>(json, "counts"));
  const Json shards = field<Json>(json, "shards");
  if (!shards.is_array() || shards.empty() || shards.size() > kMaxShards) {
    throw InputError("data", fmt::format("{}: lists no shards", path.string()));
  }
  for (const Json& shard : shards) {
    record.shards.push_back(BertShardInfo::from_json(shard));
  }
  return record;
}

void check_recorded_hash(const fs::path& shard) {
  const fs::path dir = shard.parent_path();
  if (!fs::exists(dir / kBertRecordName)) return;
  for (const BertShardInfo& info : BertRecord::read(dir).shards) {
    if (info.name != shard.filename()) continue;
    const MappedFile file(shard);
    BlockHasher hasher;
    hasher.update(file.bytes());
    const std::string found = combine_hashes(hasher.finish());
    if (found == info.hash) return;
    throw InputError("data",
                     fmt::format("{}: its hash is {}, {} has {}; the file is "
                                 "damaged, copy it again",
                                 shard.string(), found, kBertRecordName, info.hash));
  }
}

void check_bert_directory(const fs::path& dir) {
  if (!fs::exists(dir / kBertRecordName)) return;
  for (const BertShardInfo& shard : BertRecord::read(dir).shards) {
    const fs::path path = join_inside(dir, shard.name, "data");
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error || bytes != shard.bytes) {
      throw InputError(
          "data",
          fmt::format("{}: {}, {} has {} bytes; copy the whole directory again",
                      path.string(),
                      error ? std::string("missing") : fmt::format("{} bytes", bytes),
                      kBertRecordName, shard.bytes));
    }
  }
}

}  // namespace longhaul::data
