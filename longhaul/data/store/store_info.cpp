#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/store/store.h"
#include "longhaul/data/store/store_fields.h"
#include "longhaul/data/store/token_words.h"

namespace longhaul::data {
namespace {

constexpr const char* kFormatName = "longhaul token store";
constexpr size_t kMaxShards = 1'000'000;
constexpr size_t kMaxSources = 100'000'000;
/// The largest store.json that is read. The limit is high because the list of sources may
/// be long.
constexpr uint64_t kMaxInfoBytes = uint64_t{1} << 30;

StoreFile file_from(const JsonFields& fields) {
  return {fields.get<std::string>("name"), static_cast<uint64_t>(fields.count("bytes")),
          fields.get<std::string>("hash")};
}

StoreFile file_in(const JsonFields& fields, const char* name) {
  return file_from(fields.inside(fields.field(name)));
}

std::optional<StoreFile> optional_file(const JsonFields& fields, const char* name) {
  if (!fields.has(name)) return std::nullopt;
  return file_in(fields, name);
}

/// Throws InputError unless the store has the file, and in the recorded size. `where`
/// names the file in messages.
void check_size(const std::string& where, std::optional<uint64_t> size,
                const std::string& missing, const StoreFile& file) {
  const auto fail = [&](const std::string& what) {
    fail_input("data", "{}: {}; build the store again or copy it again", where, what);
  };
  if (!size) fail("missing (" + missing + ")");
  if (*size != file.bytes) {
    fail(fmt::format("{} bytes, but store.json says {}", *size, file.bytes));
  }
}

void check_file(const fs::path& dir, const StoreFile& file) {
  const fs::path path = join_inside(dir, file.name, "data");
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  check_size(path.string(), error ? std::nullopt : std::optional(size), error.message(),
             file);
}

/// Throws InputError unless a shard's files have the sizes that follow from its counts.
void check_shard(const JsonFields& fields, const StoreShard& shard, int token_bytes) {
  const auto require = [&](const StoreFile& file, uint64_t bytes) {
    if (file.bytes == bytes) return;
    fields.fail(fmt::format("{} has {} bytes where {} tokens in {} documents need {}",
                            file.name, file.bytes, shard.tokens, shard.documents, bytes));
  };
  if (shard.documents < 1 || shard.tokens < shard.documents) {
    fields.fail(fmt::format("{}: {} documents cannot have {} tokens",
                            shard.token_file.name, shard.documents, shard.tokens));
  }
  const auto tokens = static_cast<uint64_t>(shard.tokens);
  const auto documents = static_cast<uint64_t>(shard.documents);
  require(shard.token_file, tokens * static_cast<uint64_t>(token_bytes));
  require(shard.document_file, documents * sizeof(uint64_t));
  if (shard.target_file) require(*shard.target_file, (tokens + 7) / 8);
  if (shard.text_file) require(*shard.text_file, documents * sizeof(uint32_t));
  if (shard.record_file) require(*shard.record_file, documents * sizeof(uint64_t));
  if (shard.not_targets > shard.tokens ||
      (shard.not_targets > 0) != shard.target_file.has_value()) {
    fields.fail(
        fmt::format("{}: {} of {} tokens are no targets, but the file of targets is {}",
                    shard.token_file.name, shard.not_targets, shard.tokens,
                    shard.target_file ? "there" : "not"));
  }
}

void check_counts(const JsonFields& fields, const StoreInfo& info) {
  if (info.counts.max_token_id >= info.vocab_size || info.vocab_size > INT32_MAX) {
    fields.fail(fmt::format("largest token id {} in a vocabulary of {}",
                            info.counts.max_token_id, info.vocab_size));
  }
  if (info.shards.empty()) fields.fail("no shards");
  for (const StoreShard& shard : info.shards)
    check_shard(fields, shard, info.token_bytes);
  StoreInfo sum;
  sum.token_bytes = info.token_bytes;
  sum.shards = info.shards;
  sum_up_shards(sum);
  if (sum.tokens != info.tokens || sum.documents != info.documents ||
      sum.counts.not_targets != info.counts.not_targets) {
    fields.fail(
        fmt::format("its shards hold {} tokens in {} documents, and {} of the tokens are "
                    "no targets; the record says {}, {} and {}",
                    sum.tokens, sum.documents, sum.counts.not_targets, info.tokens,
                    info.documents, info.counts.not_targets));
  }
  if (sum.fingerprint != info.fingerprint) {
    fields.fail("the fingerprint is not that of the shards");
  }
}

void read_tokenizer(const JsonFields& fields, StoreInfo& info) {
  info.tokenizer_fingerprint = fields.get<std::string>("fingerprint");
  for (const Json& file : fields.list("files", 1000)) {
    info.tokenizer_files.push_back(file_from(fields.inside(file)));
  }
}

StoreChat chat_from(const JsonFields& fields) {
  StoreChat chat{fields.get<std::string>("template"),
                 fields.get<std::string>("targets"),
                 fields.get<std::string>("day"),
                 {}};
  for (const auto& [name, finding] : fields.field("findings").items()) {
    const JsonFields of = fields.inside(finding);
    chat.findings[name] = {of.count("count"), of.get<std::string>("first")};
  }
  return chat;
}

OrderedJson to_json(const StoreChat& chat) {
  OrderedJson findings = OrderedJson::object();
  for (const auto& [name, finding] : chat.findings) {
    findings[name] = {{"count", finding.count}, {"first", finding.first}};
  }
  return {{"template", chat.template_hash},
          {"targets", chat.targets},
          {"day", chat.day},
          {"findings", findings}};
}

StoreInfo parse(const Json& json, const fs::path& file) {
  const JsonFields fields = store_fields(json, file);
  if (fields.get<std::string>("format") != kFormatName) fields.fail("not a token store");
  const int64_t version = fields.count("version");
  if (version != kStoreVersion) {
    fail_input("data", "{}: format version {}; this program reads version {}; {}",
               file.string(), version, kStoreVersion,
               version < kStoreVersion
                   ? "build the store again from its sources with 'longhaul data build'"
                   : "use a newer program");
  }
  StoreInfo info;
  info.token_bytes = fields.get<int>("token_bytes");
  if (!is_token_bytes(info.token_bytes)) {
    fields.fail(
        fmt::format("tokens of {} bytes; known are 2, 3 and 4", info.token_bytes));
  }
  info.tokens = fields.count("tokens");
  info.documents = fields.count("documents");
  info.counts = counts_from_json(fields.field("counts"), file);
  info.vocab_size = fields.count("vocab_size");
  for (const Json& shard : fields.list("shards", kMaxShards)) {
    info.shards.push_back(shard_from_json(shard, file));
  }
  read_tokenizer(fields.inside(fields.field("tokenizer")), info);
  info.self_test = optional_file(fields, "self_test");
  info.bad_records = optional_file(fields, "bad_records");
  info.special_tokens = fields.get<std::string>("special_tokens");
  if (fields.has("kind")) info.kind = fields.get<std::string>("kind");
  if (info.kind != "text" && info.kind != "chats" && info.kind != "pairs") {
    fields.fail(
        fmt::format("'kind' is '{}'; known are text, chats and pairs", info.kind));
  }
  if (fields.has("chat")) info.chat = chat_from(fields.inside(fields.field("chat")));
  if (info.kind == "pairs" && info.documents % 2 != 0) {
    fields.fail(fmt::format("{} documents cannot be pairs", info.documents));
  }
  info.selection = fields.get<std::string>("selection");
  info.dropped = fields.get<std::map<std::string, int64_t>>("dropped");
  info.padding_removed = fields.count("padding_removed");
  info.build = fields.get<std::string>("build");
  info.fingerprint = fields.get<std::string>("fingerprint");
  for (const Json& origin : fields.list("sources", kMaxSources)) {
    const JsonFields of = fields.inside(origin);
    info.origins.push_back({of.get<std::string>("path"),
                            static_cast<uint64_t>(of.count("bytes")),
                            of.get<std::string>("hash"), of.count("records")});
  }
  check_counts(fields, info);
  return info;
}

/// Calls visit(name, number) for each number of the counts, in the order of store.json.
template <typename Counts, typename Visit>
void visit_numbers(Counts& counts, const Visit& visit) {
  visit("text_bytes", counts.text_bytes);
  visit("max_token_id", counts.max_token_id);
  visit("special_tokens_in_text", counts.special_in_text);
  visit("ready_documents", counts.ready_documents);
  visit("not_targets", counts.not_targets);
  visit("shortest", counts.lengths.shortest);
  visit("longest", counts.lengths.longest);
}

OrderedJson list(const std::vector<StoreFile>& files) {
  OrderedJson json = OrderedJson::array();
  for (const StoreFile& file : files) json.push_back(to_json(file));
  return json;
}

}  // namespace

OrderedJson to_json(const StoreFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}};
}

OrderedJson to_json(const StoreShard& shard) {
  OrderedJson json = {{"tokens", shard.tokens},
                      {"documents", shard.documents},
                      {"not_targets", shard.not_targets},
                      {"token_file", to_json(shard.token_file)},
                      {"document_file", to_json(shard.document_file)}};
  if (shard.target_file) json["target_file"] = to_json(*shard.target_file);
  if (shard.text_file) json["text_file"] = to_json(*shard.text_file);
  if (shard.record_file) json["record_file"] = to_json(*shard.record_file);
  for (const auto& [file, lines] : shard.lines_before) {
    json["lines_before"].push_back({file, lines});
  }
  json["hash_file"] = to_json(shard.hash_file);
  return json;
}

OrderedJson to_json(const StoreCounts& counts) {
  std::vector<int64_t> lengths(counts.lengths.counts.begin(),
                               counts.lengths.counts.end());
  while (!lengths.empty() && lengths.back() == 0) lengths.pop_back();
  OrderedJson json;
  visit_numbers(counts, [&](const char* name, auto& number) { json[name] = number; });
  json["lengths"] = lengths;
  return json;
}

StoreShard shard_from_json(const Json& json, const fs::path& file) {
  const JsonFields fields = store_fields(json, file);
  StoreShard shard;
  shard.tokens = fields.count("tokens");
  shard.documents = fields.count("documents");
  shard.not_targets = fields.count("not_targets");
  shard.token_file = file_in(fields, "token_file");
  shard.document_file = file_in(fields, "document_file");
  shard.target_file = optional_file(fields, "target_file");
  shard.text_file = optional_file(fields, "text_file");
  shard.record_file = optional_file(fields, "record_file");
  if (fields.has("lines_before")) {
    using Lines = std::vector<std::pair<int64_t, int64_t>>;
    for (const auto& [origin, lines] : fields.get<Lines>("lines_before")) {
      shard.lines_before[origin] = lines;
    }
  }
  shard.hash_file = file_in(fields, "hash_file");
  return shard;
}

StoreCounts counts_from_json(const Json& json, const fs::path& file) {
  const JsonFields fields = store_fields(json, file);
  StoreCounts counts;
  visit_numbers(counts, [&]<typename Number>(const char* name, Number& number) {
    number = static_cast<Number>(fields.count(name));
  });
  const auto lengths = fields.get<std::vector<int64_t>>("lengths");
  if (lengths.size() > counts.lengths.counts.size()) {
    fields.fail(fmt::format("'lengths' has {} entries", lengths.size()));
  }
  std::copy(lengths.begin(), lengths.end(), counts.lengths.counts.begin());
  return counts;
}

bool is_token_store(const fs::path& path) { return fs::exists(path / kStoreRecord); }

bool is_shard_file(std::string_view name) {
  constexpr std::array<std::string_view, 6> kKinds = {"tokens_", "documents_", "targets_",
                                                      "texts_",  "records_",   "hashes_"};
  return name.find('/') == std::string_view::npos &&
         std::ranges::any_of(kKinds, [&](auto kind) { return name.starts_with(kind); });
}

StoreInfo read_store_info(const fs::path& path, const objects::Pieces* pieces) {
  const fs::path file = path / kStoreRecord;
  StoreInfo info = parse(read_json(file, kMaxInfoBytes), file);
  for (const StoreShard& shard : info.shards) {
    for (const StoreFile& part : shard.files()) {
      if (pieces == nullptr) {
        check_file(path, part);
      } else {
        check_size(pieces->name_of(part.name), pieces->size(part.name), "no such object",
                   part);
      }
    }
  }
  for (const StoreFile& part : info.side_files()) check_file(path, part);
  return info;
}

std::string store_info_text(const StoreInfo& info) {
  OrderedJson shards = OrderedJson::array();
  for (const StoreShard& shard : info.shards) shards.push_back(to_json(shard));
  OrderedJson origins = OrderedJson::array();
  for (const StoreOrigin& origin : info.origins) {
    origins.push_back(OrderedJson{{"path", origin.path},
                                  {"bytes", origin.bytes},
                                  {"hash", origin.hash},
                                  {"records", origin.records}});
  }
  OrderedJson json;
  json["format"] = kFormatName;
  json["version"] = kStoreVersion;
  json["token_bytes"] = info.token_bytes;
  json["tokens"] = info.tokens;
  json["documents"] = info.documents;
  json["counts"] = to_json(info.counts);
  json["vocab_size"] = info.vocab_size;
  json["special_tokens"] = info.special_tokens;
  if (info.kind != "text") json["kind"] = info.kind;
  if (info.chat) json["chat"] = to_json(*info.chat);
  json["selection"] = info.selection;
  json["dropped"] = info.dropped;
  json["padding_removed"] = info.padding_removed;
  json["fingerprint"] = info.fingerprint;
  json["build"] = info.build;
  json["tokenizer"] = {{"fingerprint", info.tokenizer_fingerprint},
                       {"files", list(info.tokenizer_files)}};
  if (info.self_test) json["self_test"] = to_json(*info.self_test);
  if (info.bad_records) json["bad_records"] = to_json(*info.bad_records);
  json["shards"] = shards;
  json["sources"] = origins;
  return json_text(json, 1) + "\n";
}

double bytes_per_token(const fs::path& path) {
  if (!is_token_store(path)) return 0.0;
  const StoreInfo info = read_store_info(path);
  return static_cast<double>(info.counts.text_bytes) / static_cast<double>(info.tokens);
}

}  // namespace longhaul::data
