#include "longhaul/format/hf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// What goes with the weights. Weights themselves, optimizer states and code do not.
constexpr std::array kSidePatterns = {"config.json",
                                      "generation_config.json",
                                      "tokenizer*.json",
                                      "tokenizer.model",
                                      "vocab.json",
                                      "vocab.txt",
                                      "merges.txt",
                                      "added_tokens.json",
                                      "special_tokens_map.json",
                                      "chat_template*",
                                      "LICENSE*",
                                      "LICENCE*",
                                      "NOTICE*",
                                      "USE_POLICY*",
                                      "README.md"};

std::vector<fs::path> files_of(const fs::path& dir) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    files.push_back(it->path());
  }
  if (error) {
    throw InputError("weights", fmt::format("{}: cannot be listed: {}", dir.string(),
                                            error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Says why there is nothing to read, from what lies there.
[[noreturn]] void fail_no_weights(const fs::path& dir) {
  if (!fs::exists(dir)) throw InputError("weights", missing_path(dir));
  if (!fs::is_directory(dir)) {
    throw InputError("weights", dir.string() + ": is not a directory");
  }
  if (fs::exists(dir / "store.json")) {
    throw InputError("weights",
                     fmt::format("{}: is a token store, which is data; give the "
                                 "directory of a model, a checkpoint or a run",
                                 dir.string()));
  }
  std::string found;
  bool pickles = false;
  for (const fs::path& file : files_of(dir)) {
    const std::string name = file.filename().string();
    pickles = pickles || glob_match("*.bin", name) || glob_match("*.pt*", name);
    if (found.size() < 200) found += (found.empty() ? "" : ", ") + name;
  }
  throw InputError(
      "weights",
      fmt::format("{}: neither {} nor {} is there (found: {}); {}", dir.string(), kSingle,
                  kIndex, found.empty() ? "an empty directory" : found,
                  pickles ? "pickled weights (.bin, .pt, .pth) are not read here: "
                            "`longhaul import` makes safetensors of them"
                          : "give a Hugging Face model directory"));
}

void note_ignored_files(const fs::path& dir, const std::set<std::string>& used,
                        std::vector<std::string>& ignored) {
  for (const fs::path& file : files_of(dir)) {
    const std::string name = file.filename().string();
    if (name == "original" && fs::is_directory(file)) {
      ignored.emplace_back("original/: weights in their first publisher's own format");
    } else if (glob_match("*.bin", name) || glob_match("*.pth", name)) {
      ignored.push_back(name + ": pickled weights beside safetensors");
    } else if (glob_match("*.safetensors", name) && !used.contains(name)) {
      ignored.push_back(name + ": not named by " + kIndex);
    }
  }
}

}  // namespace

bool is_stray_hf_tensor(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

HfIndex HfIndex::read(const fs::path& path) {
  return parse(read_text(path, uint64_t{1} << 26), path);
}

HfIndex HfIndex::parse(std::string_view text, const fs::path& path) {
  const std::string what = path.string();
  const Json json = parse_json(text, what);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    throw InputError("weights", what + ": no \"weight_map\" object with tensors in it");
  }
  HfIndex index;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      throw InputError("weights",
                       fmt::format("{}: weight_map['{}'] is no file name", what, name));
    }
    join_inside(path.parent_path(), file.get<std::string>(), "weights");
    index.weight_map[name] = file.get<std::string>();
  }
  if (const auto meta = json.find("metadata"); meta != json.end() && meta->is_object()) {
    const auto total = meta->find("total_size");
    if (total != meta->end() && total->is_number() && *total >= 0) {
      index.total_size =
          total->is_number_float()
              ? static_cast<uint64_t>(std::clamp(total->get<double>(), 0.0, 9.0e18))
              : total->get<uint64_t>();
    }
  }
  return index;
}

std::vector<HfShard> list_hf_shards(const fs::path& dir) {
  std::map<std::string, uint64_t> names;
  if (fs::exists(dir / kIndex)) {
    for (const auto& [tensor, file] : HfIndex::read(dir / kIndex).weight_map)
      ++names[file];
  } else if (fs::exists(dir / kSingle)) {
    names[kSingle] = 0;
  }
  std::vector<HfShard> shards;
  for (const auto& [name, tensors] : names) {
    std::error_code error;
    HfShard shard;
    shard.name = name;
    shard.tensors = tensors;
    shard.size = fs::file_size(dir / name, error);
    shard.present = !error;
    if (error) shard.size = 0;
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<std::string> hf_side_files(const fs::path& dir) {
  std::vector<std::string> names;
  for (const fs::path& file : files_of(dir)) {
    const std::string name = file.filename().string();
    const bool wanted = std::any_of(kSidePatterns.begin(), kSidePatterns.end(),
                                    [&](const char* p) { return glob_match(p, name); });
    if (wanted && fs::is_regular_file(file)) names.push_back(name);
  }
  return names;
}

void HfWeights::add_shard(const std::string& name, const HfIndex* index) {
  files_.push_back(std::make_unique<SafetensorsFile>(
      SafetensorsFile::open(join_inside(dir_, name, "weights"))));
  const SafetensorsFile& file = *files_.back();
  uint64_t indexed = 0;
  for (const SafetensorsEntry& entry : file.header().entries) {
    if (is_stray_hf_tensor(entry.name)) {
      ignored_.push_back(entry.name + ": a buffer, not a weight");
      continue;
    }
    if (index != nullptr) {
      const auto place = index->weight_map.find(entry.name);
      if (place == index->weight_map.end() || place->second != name) {
        throw InputError("weights", fmt::format("{}: holds tensor '{}', which {} puts {}",
                                                file.path().string(), entry.name, kIndex,
                                                place == index->weight_map.end()
                                                    ? std::string("nowhere")
                                                    : "into " + place->second));
      }
    }
    ++indexed;
    where_[entry.name] = {files_.size() - 1, &entry};
  }
  shards_.push_back({name, true, file.size(), indexed});
}

HfWeights HfWeights::open(const fs::path& dir) {
  HfWeights weights;
  weights.dir_ = dir;
  std::vector<HfShard> shards;
  if (fs::is_directory(dir)) shards = list_hf_shards(dir);
  if (shards.empty()) fail_no_weights(dir);
  std::string missing;
  size_t absent = 0;
  for (const HfShard& shard : shards) {
    if (shard.present) continue;
    if (++absent <= 8) missing += (missing.empty() ? "" : ", ") + shard.name;
  }
  if (absent > 0) {
    throw InputError("weights",
                     fmt::format("{}: {} of {} missing: {}{}; copy them from "
                                 "where the model came from",
                                 dir.string(), absent,
                                 counted(std::ssize(shards), "shard is", "shards are"),
                                 missing, absent > 8 ? " ..." : ""));
  }
  const bool has_index = fs::exists(dir / kIndex);
  const HfIndex index = has_index ? HfIndex::read(dir / kIndex) : HfIndex{};
  std::set<std::string> used;
  for (const HfShard& shard : shards) {
    weights.add_shard(shard.name, has_index ? &index : nullptr);
    used.insert(shard.name);
  }
  for (const auto& [tensor, file] : index.weight_map) {
    if (!weights.has(tensor) && !is_stray_hf_tensor(tensor)) {
      throw InputError("weights",
                       fmt::format("{}: {} puts tensor '{}' into {}, where it is "
                                   "not",
                                   dir.string(), kIndex, tensor, file));
    }
  }
  note_ignored_files(dir, used, weights.ignored_);
  return weights;
}

std::vector<TensorSlice> HfWeights::tensors() const {
  std::vector<TensorSlice> result;
  for (const auto& [name, place] : where_) {
    result.push_back(TensorSlice::whole(name, place.entry->shape, place.entry->dtype));
  }
  return result;
}

std::optional<HfWeights::Location> HfWeights::locate(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) return std::nullopt;
  const SafetensorsEntry& entry = *found->second.entry;
  return Location{TensorSlice::whole(entry.name, entry.shape, entry.dtype),
                  found->second.file, entry.begin};
}

void HfWeights::read(const TensorSlice& box, DType dst, std::span<std::byte> out) const {
  const auto found = where_.find(box.name);
  if (found == where_.end()) {
    throw InputError("weights",
                     fmt::format("{}: no tensor '{}'", dir_.string(), box.name));
  }
  const SafetensorsEntry& entry = *found->second.entry;
  const SafetensorsFile& file = *files_[found->second.file];
  if (entry.shape != box.global_shape) {
    throw InputError("weights", fmt::format("{}: tensor '{}' has shape {}, expected {}",
                                            file.path().string(), box.name,
                                            describe_shape(entry.shape),
                                            describe_shape(box.global_shape)));
  }
  if (entry.dtype != dst && !(is_float(entry.dtype) && is_float(dst))) {
    throw InputError("weights",
                     fmt::format("{}: tensor '{}' is {}, which does not convert "
                                 "to {}",
                                 file.path().string(), box.name, dtype_name(entry.dtype),
                                 dtype_name(dst)));
  }
  TensorSlice wanted = box;
  wanted.dtype = dst;
  read_box([&](uint64_t offset,
               std::span<std::byte> bytes) { file.read(entry, offset, bytes); },
           TensorSlice::whole(entry.name, entry.shape, entry.dtype), wanted, out);
}

const std::map<std::string, std::string>& HfWeights::metadata() const {
  return files_.front()->header().metadata;
}

}  // namespace longhaul
