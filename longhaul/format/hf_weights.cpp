#include "longhaul/format/hf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/format/refused_forms.h"
#include "longhaul/format/side_files.h"
#include "longhaul/system/open_files.h"

namespace longhaul::format {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kIndexEnding = ".safetensors.index.json";
/// The field of config.json that names the weights' file.
constexpr const char* kNamedWeights = "transformers_weights";

// Throws InputError that says why there are no weights, judged by what the directory
// holds.
[[noreturn]] void fail_no_weights(const fs::path& dir) {
  if (!fs::exists(dir)) throw InputError("weights", missing_path(dir));
  if (!fs::is_directory(dir)) {
    fail_input("weights", "{}: is not a directory", dir.string());
  }
  if (fs::exists(dir / "store.json")) {
    fail_input("weights",
               "{}: is a token store, which is data; give the directory of a model, a "
               "checkpoint or a run",
               dir.string());
  }
  if (const std::string other = other_form(dir); !other.empty()) {
    throw InputError("weights", dir.string() + ": " + other);
  }
  std::string found;
  bool pickles = false;
  for (const std::string& name : listed_names(dir)) {
    pickles = pickles || glob_match("*.bin", name) || glob_match("*.pt*", name);
    if (found.size() < 200) found += (found.empty() ? "" : ", ") + name;
  }
  fail_input("weights", "{}: neither {} nor {} is there (found: {}); {}", dir.string(),
             kSingle, kIndex, found.empty() ? "an empty directory" : found,
             pickles ? "pickled weights (.bin, .pt, .pth) are not read here: `longhaul "
                       "import` makes safetensors of them"
                     : "give a Hugging Face model directory");
}

/// Returns what lies beside the weights and is not read, one line each.
std::vector<std::string> passed_over(const fs::path& dir, std::set<std::string> used,
                                     const std::string& chosen) {
  std::vector<std::string> lines;
  std::string others;
  used.insert(chosen);
  for (const std::string& name : files_left_behind(dir, {used.begin(), used.end()})) {
    if (name == "original/") {
      lines.push_back(name + ": weights in their first publisher's own format");
    } else if (glob_match("*.bin", name) || glob_match("*.pth", name)) {
      lines.push_back(name + ": pickled weights beside safetensors");
    } else if (name.ends_with(".safetensors") || name.ends_with(kIndexEnding)) {
      lines.push_back(fmt::format("{}: the weights are those of {}", name, chosen));
    } else {
      others += (others.empty() ? "" : ", ") + name;
    }
  }
  if (!others.empty()) lines.push_back(others + ": no part of a model");
  return lines;
}

/// Returns the weights' name in config.json, or nothing. An unreadable config counts as
/// no name; the code that reads the config itself reports that error.
std::optional<std::string> named_weights(const fs::path& dir) {
  const fs::path path = dir / "config.json";
  Json json;
  try {
    if (!fs::exists(path)) return std::nullopt;
    json = read_json(path, uint64_t{1} << 24);
  } catch (const InputError&) {
    return std::nullopt;
  }
  if (!json.is_object() || !json.contains(kNamedWeights)) return std::nullopt;
  const Json& value = json[kNamedWeights];
  if (value.is_null()) return std::nullopt;
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  if (!name.ends_with(".safetensors") && !name.ends_with(kIndexEnding)) {
    fail_input("weights",
               "{}: {} is {}, which is neither a *.safetensors file nor a *{}; name such "
               "a file, or remove the field",
               path.string(), kNamedWeights, json_text(value), kIndexEnding);
  }
  join_inside(dir, name, "weights");
  return name;
}

/// Returns whether something has that name, even a dangling link.
bool has_name(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

/// The set of weights that is read in a directory.
struct ChosenSet {
  std::string name;  ///< of the file or index; empty: there is none
  std::optional<HfIndex> index;
};

ChosenSet choose_set(const fs::path& dir) {
  ChosenSet set;
  if (const auto named = named_weights(dir)) {
    set.name = *named;
  } else if (has_name(dir / kSingle)) {
    set.name = kSingle;
  } else if (has_name(dir / kIndex)) {
    set.name = kIndex;
  }
  if (!set.name.ends_with(kIndexEnding)) return set;
  if (const std::string link = dangling_link(dir / set.name); !link.empty()) {
    fail_input("weights", "{}: {}; copy the file from where the model came from",
               (dir / set.name).string(), link);
  }
  set.index = HfIndex::read(dir / set.name);
  return set;
}

std::vector<HfShard> shards_of(const fs::path& dir, const ChosenSet& set) {
  std::map<std::string, uint64_t> names;
  if (set.index) {
    for (const auto& [tensor, file] : set.index->weight_map) ++names[file];
  } else if (!set.name.empty()) {
    names[set.name] = 0;
  }
  std::vector<HfShard> shards;
  for (const auto& [name, tensors] : names) {
    std::error_code error;
    HfShard shard;
    shard.name = shard.described = name;
    shard.tensors = tensors;
    shard.size = fs::file_size(dir / name, error);
    shard.present = !error;
    if (error) shard.size = 0;
    if (const std::string link = dangling_link(dir / name); !link.empty()) {
      shard.described += " (" + link + ")";
    }
    shards.push_back(std::move(shard));
  }
  return shards;
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
    fail_input("weights", "{}: no \"weight_map\" object with tensors in it", what);
  }
  HfIndex index;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      fail_input("weights", "{}: weight_map['{}'] is no file name", what, name);
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
  return shards_of(dir, choose_set(dir));
}

void HfWeights::add_shard(const std::string& name, const HfIndex* index,
                          const std::string& chosen) {
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
      if (place == index->weight_map.end()) {
        ignored_.push_back(fmt::format("{} in {}: {} does not name the tensor",
                                       entry.name, name, chosen));
        continue;
      }
      if (place->second != name) {
        // If a tensor has several copies, transformers keeps that of the last file.
        if (place->second < name) {
          fail_input("weights",
                     "{}: {} puts tensor '{}' into {}, but {} holds it too, and "
                     "transformers takes the copy of the last file; remove one of the "
                     "two, or copy the directory again",
                     dir_.string(), chosen, entry.name, place->second, name);
        }
        ignored_.push_back(fmt::format("{} in {}: {} puts the tensor into {}", entry.name,
                                       name, chosen, place->second));
        continue;
      }
    }
    ++indexed;
    where_[entry.name] = {files_.size() - 1, &entry};
  }
  shards_.push_back({name, true, file.size(), indexed, name});
}

HfWeights HfWeights::open(const fs::path& dir) {
  HfWeights weights;
  weights.dir_ = dir;
  ChosenSet set;
  if (fs::is_directory(dir)) set = choose_set(dir);
  if (set.name.empty()) fail_no_weights(dir);
  const std::vector<HfShard> shards = shards_of(dir, set);
  std::string missing;
  size_t absent = 0;
  for (const HfShard& shard : shards) {
    if (shard.present) continue;
    if (++absent <= 8) missing += (missing.empty() ? "" : ", ") + shard.described;
  }
  if (absent > 0) {
    fail_input(
        "weights", "{}: {} of {} missing: {}{}; copy them from where the model came from",
        dir.string(), absent, counted(std::ssize(shards), "shard is", "shards are"),
        missing, absent > 8 ? " ..." : "");
  }
  const HfIndex* const index = set.index ? &*set.index : nullptr;
  system::need_open_files(shards.size(), "weights", dir.string());
  std::set<std::string> used;
  for (const HfShard& shard : shards) {
    weights.add_shard(shard.name, index, set.name);
    used.insert(shard.name);
  }
  if (index != nullptr) weights.check_index(*index, set.name);
  const auto lines = passed_over(dir, used, set.name);
  weights.ignored_.insert(weights.ignored_.end(), lines.begin(), lines.end());
  return weights;
}

void HfWeights::check_index(const HfIndex& index, const std::string& chosen) const {
  for (const auto& [tensor, file] : index.weight_map) {
    if (!has(tensor) && !is_stray_hf_tensor(tensor)) {
      fail_input("weights",
                 "{}: {} puts tensor '{}' into {}, but the file does not hold it; copy "
                 "the directory from where the model came from",
                 dir_.string(), chosen, tensor, file);
    }
  }
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
    fail_input("weights", "{}: no tensor '{}'", dir_.string(), box.name);
  }
  const SafetensorsEntry& entry = *found->second.entry;
  const SafetensorsFile& file = *files_[found->second.file];
  if (entry.shape != box.global_shape) {
    fail_input("weights", "{}: tensor '{}' has shape {}, expected {}",
               file.path().string(), box.name, describe_shape(entry.shape),
               describe_shape(box.global_shape));
  }
  if (entry.dtype != dst && !(is_float(entry.dtype) && is_float(dst))) {
    fail_input("weights", "{}: tensor '{}' is {}, which does not convert to {}",
               file.path().string(), box.name, dtype_name(entry.dtype), dtype_name(dst));
  }
  TensorSlice wanted = box;
  wanted.dtype = dst;
  read_box([&](uint64_t offset,
               std::span<std::byte> bytes) { file.read(entry, offset, bytes); },
           TensorSlice::whole(entry.name, entry.shape, entry.dtype), wanted, out);
}

}  // namespace longhaul::format
