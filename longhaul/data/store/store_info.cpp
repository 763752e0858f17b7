#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {
namespace {

constexpr const char* kFormatName = "longhaul token store";
constexpr int64_t kMaxTokens = int64_t{1} << 56;

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw InputError("data", fmt::format("{}: {}; build the store again or copy it again",
                                       file.string(), what));
}

/// Fields of one JSON object of store.json, with the file in every message.
class Fields {
 public:
  Fields(const Json& json, const fs::path& file) : json_(json), file_(file) {
    if (!json.is_object()) fail(file, "an object was expected");
  }
  template <typename Value>
  Value get(const char* name) const {
    const auto at = json_.find(name);
    if (at == json_.end()) fail(file_, fmt::format("the field '{}' is missing", name));
    try {
      return at->template get<Value>();
    } catch (const Json::exception&) {
      fail(file_, fmt::format("the field '{}' has the wrong type: {}", name, at->dump()));
    }
  }
  int64_t count(const char* name) const {
    const Json value = get<Json>(name);
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(kMaxTokens)) {
      fail(file_, fmt::format("the field '{}' is {}, not a count", name, value.dump()));
    }
    return value.get<int64_t>();
  }

 private:
  const Json& json_;
  const fs::path& file_;
};

OrderedJson file_to_json(const StoreFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}};
}

StoreFile file_from_json(const Json& json, const fs::path& where) {
  const Fields fields(json, where);
  return {fields.get<std::string>("name"), static_cast<uint64_t>(fields.count("bytes")),
          fields.get<std::string>("hash")};
}

std::vector<StoreFile> files_from_json(const Json& list, const fs::path& where) {
  if (!list.is_array()) fail(where, "a list of files was expected");
  std::vector<StoreFile> files;
  for (const Json& file : list) files.push_back(file_from_json(file, where));
  return files;
}

void check_file(const fs::path& dir, const StoreFile& file) {
  const fs::path path = join_inside(dir, file.name, "data");
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) fail(path, "missing (" + error.message() + ")");
  if (size != file.bytes) {
    fail(path, fmt::format("{} bytes, but store.json says {}", size, file.bytes));
  }
}

/// The sizes that follow from the counts.
void check_counts(const fs::path& file, const StoreInfo& info) {
  if (info.tokens < 1 || info.documents < 1 || info.tokens_per_shard < 1) {
    fail(file, "no tokens, documents or tokens per shard");
  }
  if (info.dtype != DType::U16 && info.dtype != DType::U32) {
    fail(file, fmt::format("dtype {} is not U16 or U32", dtype_name(info.dtype)));
  }
  if (info.max_token_id >= info.vocab_size || info.vocab_size > INT32_MAX) {
    fail(file, fmt::format("largest token id {} in a vocabulary of {}", info.max_token_id,
                           info.vocab_size));
  }
  const auto width = static_cast<int64_t>(dtype_size(info.dtype));
  int64_t left = info.tokens;
  for (const StoreFile& shard : info.shards) {
    const int64_t here = std::min(left, info.tokens_per_shard);
    if (here < 1 || shard.bytes != static_cast<uint64_t>(here * width)) {
      fail(file, fmt::format("shard {} has {} bytes where {} tokens are left", shard.name,
                             shard.bytes, left));
    }
    left -= here;
  }
  if (left != 0) fail(file, fmt::format("{} tokens are in no shard", left));
  if (info.document_ends.bytes != static_cast<uint64_t>(info.documents) * 8) {
    fail(file, fmt::format("{} documents, but {} bytes of document ends", info.documents,
                           info.document_ends.bytes));
  }
}

StoreInfo parse(const Json& json, const fs::path& file) {
  const Fields fields(json, file);
  if (fields.get<std::string>("format") != kFormatName) fail(file, "not a token store");
  const int64_t version = fields.count("version");
  if (version != kStoreVersion) {
    throw InputError("data", fmt::format("{}: format version {}; this program reads "
                                         "version {}; use a newer program or build the "
                                         "store again",
                                         file.string(), version, kStoreVersion));
  }
  StoreInfo info;
  const auto dtype = dtype_from_name(fields.get<std::string>("dtype"));
  if (!dtype) fail(file, "unknown dtype");
  info.dtype = *dtype;
  info.tokens = fields.count("tokens");
  info.documents = fields.count("documents");
  info.text_bytes = static_cast<uint64_t>(fields.count("text_bytes"));
  info.max_token_id = fields.count("max_token_id");
  info.vocab_size = fields.count("vocab_size");
  info.tokens_per_shard = fields.count("tokens_per_shard");
  info.shards = files_from_json(fields.get<Json>("shards"), file);
  info.document_ends = file_from_json(fields.get<Json>("document_ends"), file);
  info.block_hashes = file_from_json(fields.get<Json>("block_hashes"), file);
  const Json tokenizer = fields.get<Json>("tokenizer");
  const Fields tokenizer_fields(tokenizer, file);
  info.tokenizer_fingerprint = tokenizer_fields.get<std::string>("fingerprint");
  info.tokenizer_files = files_from_json(tokenizer_fields.get<Json>("files"), file);
  info.special_tokens = fields.get<std::string>("special_tokens");
  info.selection = fields.get<std::string>("selection");
  info.dropped = fields.get<std::map<std::string, int64_t>>("dropped");
  info.special_tokens_in_text = fields.count("special_tokens_in_text");
  info.fingerprint = fields.get<std::string>("fingerprint");
  for (const Json& origin : fields.get<Json>("sources")) {
    const Fields of(origin, file);
    info.origins.push_back({of.get<std::string>("path"),
                            static_cast<uint64_t>(of.count("bytes")),
                            of.get<std::string>("hash"), of.count("records")});
  }
  return info;
}

}  // namespace

bool is_token_store(const fs::path& path) { return fs::exists(path / "store.json"); }

StoreInfo read_store_info(const fs::path& path) {
  const fs::path file = path / "store.json";
  const StoreInfo info = parse(read_json(file), file);
  check_counts(file, info);
  for (const StoreFile& shard : info.shards) check_file(path, shard);
  check_file(path, info.document_ends);
  check_file(path, info.block_hashes);
  for (const StoreFile& part : info.tokenizer_files) check_file(path / "tokenizer", part);
  return info;
}

std::string store_info_text(const StoreInfo& info) {
  const auto list = [](const std::vector<StoreFile>& files) {
    OrderedJson json = OrderedJson::array();
    for (const StoreFile& file : files) json.push_back(file_to_json(file));
    return json;
  };
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
  json["dtype"] = dtype_name(info.dtype);
  json["tokens"] = info.tokens;
  json["documents"] = info.documents;
  json["text_bytes"] = info.text_bytes;
  json["max_token_id"] = info.max_token_id;
  json["vocab_size"] = info.vocab_size;
  json["special_tokens"] = info.special_tokens;
  json["selection"] = info.selection;
  json["special_tokens_in_text"] = info.special_tokens_in_text;
  json["dropped"] = info.dropped;
  json["fingerprint"] = info.fingerprint;
  json["tokens_per_shard"] = info.tokens_per_shard;
  json["shards"] = list(info.shards);
  json["document_ends"] = file_to_json(info.document_ends);
  json["block_hashes"] = file_to_json(info.block_hashes);
  json["tokenizer"] = {{"fingerprint", info.tokenizer_fingerprint},
                       {"files", list(info.tokenizer_files)}};
  json["sources"] = origins;
  return json.dump(1) + "\n";
}

double bytes_per_token(const fs::path& path) {
  if (!is_token_store(path)) return 0.0;
  const StoreInfo info = read_store_info(path);
  return static_cast<double>(info.text_bytes) / static_cast<double>(info.tokens);
}

}  // namespace longhaul::data
