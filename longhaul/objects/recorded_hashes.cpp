#include "longhaul/objects/recorded_hashes.h"

#include <utility>
#include <vector>

#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"

namespace longhaul::objects {
namespace {

/// The names of the files that are records of this program, without ".json".
constexpr const char* kRecords = "store manifest bert";
/// The most bytes of a record. The reader of store.json takes no more either.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

using Hashes = std::vector<std::pair<std::string, std::string>>;

/// Adds the names and hashes of all files that a record lists. `dir` stands before each
/// name: the files of a tokenizer lie in a directory of their own.
void add_files(const Json& json, const std::string& dir, Hashes& found) {
  if (json.is_object() && json.contains("name") && json.contains("hash")) {
    found.emplace_back(dir + json.at("name").get<std::string>(),
                       json.at("hash").get<std::string>());
    return;
  }
  if (!json.is_structured()) return;
  for (const auto& [key, inside] : json.items()) {
    add_files(inside, json.is_object() && key == "tokenizer" ? "tokenizer/" : dir, found);
  }
}

/// Returns what a record of this program lists; nothing for another program's file.
Hashes hashes_in(const fs::path& file) {
  Hashes found;
  const Json record = read_json(file, kMostBytes);
  if (record.is_object() && record.value("format", "").starts_with("longhaul")) {
    add_files(record, "", found);
  }
  return found;
}

}  // namespace

void RecordedHashes::learn(const fs::path& copy, const Address& object) {
  const size_t slash = object.key.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::string record = object.key.substr(name);
  const fs::path file_name = record;
  if (file_name.extension() != ".json") return;
  if (!has_word(kRecords, file_name.stem().string())) return;
  const Address dir{object.bucket, name == 0 ? "" : object.key.substr(0, slash)};
  Hashes found;
  // A damaged record is reported by the reader of the record.
  static_cast<void>(Failure::of([&] { found = hashes_in(copy); }));
  const std::lock_guard lock(mutex_);
  for (auto& [file, hash] : found) {
    by_address_[(dir / file).text()] = {std::move(hash), record, dir};
  }
}

std::optional<RecordedHashes::Recorded> RecordedHashes::of(const Address& object) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(object.text());
  if (found == by_address_.end()) return std::nullopt;
  return found->second;
}

}  // namespace longhaul::objects
