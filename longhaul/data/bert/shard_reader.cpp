#include "longhaul/data/bert/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/data/input/file_kinds.h"

namespace longhaul::data {
namespace {

constexpr const char* kShardPattern = "*_training_*.hdf5";

system::ChildLimits reader_limits() {
  system::ChildLimits limits;
  limits.memory_bytes = 2 * kMaxShardBytes;
  limits.cpu_seconds = 600;
  limits.answer_bytes = kMaxShardBytes + sizeof(ShardShape);
  return limits;
}

/// Runs in the child process. Returns the shard's bytes, followed by its shape.
std::string read_in_child(const std::string& path) {
  const BertShard shard = read_shard_unprotected(path);
  std::string answer;
  answer.reserve(shard.bytes().size() + sizeof(ShardShape));
  answer = shard.bytes();
  answer.append(reinterpret_cast<const char*>(&shard.shape()), sizeof(ShardShape));
  return answer;
}

bool is_training_shard(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return name.front() != '.' && glob_match(kShardPattern, name);
}

/// Throws InputError for records of text beside shards, which would otherwise be ignored
/// silently. A plain .json file is no error, since the file may describe the shards or
/// the model.
void refuse_other_records(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const fs::path& path = entry.path();
    const auto format = format_of_name(path);
    if (!format || !has_fields(*format) || is_side_file(path, {}) ||
        path.extension() == ".json") {
      continue;
    }
    fail_input("data",
               "{}: holds both shards of BERT's examples and {} of {}; name the files "
               "that you mean, for example '{}'",
               directory.string(), path.filename().string(), format_name(*format),
               (directory / kShardPattern).string());
  }
}

}  // namespace

ShardReader::ShardReader() : process_(read_in_child, reader_limits()) {}

BertShard ShardReader::read(const fs::path& path, int64_t vocab_size) {
  check_recorded_hash(path);
  std::string answer = process_.ask(path.string(), path.string());
  ShardShape shape;
  if (answer.size() < sizeof(shape)) {
    fail_input(
        "data",
        "{}: the process that reads the file gave only {} bytes; the file is damaged",
        path.string(), answer.size());
  }
  const size_t bytes = answer.size() - sizeof(shape);
  std::memcpy(&shape, answer.data() + bytes, sizeof(shape));
  answer.resize(bytes);
  BertShard shard(shape, std::move(answer));
  check_shard(shard, vocab_size, path);
  return shard;
}

bool names_bert_shards(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".hdf5") || name.ends_with(".h5")) return fs::is_regular_file(path);
  if (!fs::is_directory(path)) return false;
  return fs::exists(path / kBertRecordName) ||
         std::ranges::any_of(fs::directory_iterator(path), is_training_shard);
}

std::vector<fs::path> find_bert_shards(const std::vector<fs::path>& arguments) {
  std::vector<fs::path> shards;
  for (const fs::path& argument : arguments) {
    if (!fs::is_directory(argument)) {
      if (!fs::is_regular_file(argument)) {
        fail_input("data", "{}: no such shard or directory of shards", argument.string());
      }
      shards.push_back(argument);
      continue;
    }
    check_bert_directory(argument);
    if (!fs::exists(argument / kBertRecordName)) refuse_other_records(argument);
    const size_t before = shards.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(argument)) {
      if (is_training_shard(entry)) shards.push_back(entry.path());
    }
    if (shards.size() == before) {
      fail_input("data",
                 "{}: holds no file {}; name a directory of BERT shards, or the files "
                 "themselves",
                 argument.string(), kShardPattern);
    }
  }
  std::ranges::sort(shards, {}, [](const fs::path& path) { return path.string(); });
  const auto twice = std::ranges::unique(shards);
  shards.erase(twice.begin(), twice.end());
  return shards;
}

}  // namespace longhaul::data
