#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/safetensors.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {

/// The content of model.safetensors.index.json.
struct HfIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor -> file name
  uint64_t total_size = 0;                        ///< 0 if the index does not say
  /// Reads an index. Throws InputError for a name that leaves the directory, a wrong
  /// type, or an empty map.
  static HfIndex read(const fs::path& path);
  /// Parses the text of an index file.
  static HfIndex parse(std::string_view text, const fs::path& path);
};

/// A shard in a directory.
struct HfShard {
  std::string name;
  bool present = false;
  uint64_t size = 0;
  uint64_t tensors = 0;  ///< tensors that the index names in the shard
  /// The name, and the reason if the shard is missing for an unusual reason:
  /// "a.safetensors (a link to ../blobs/1f, where nothing is)".
  std::string described;
};

/// The weights of a Hugging Face directory. If there are several sets, the choice is that
/// of transformers: what transformers_weights in config.json names, else
/// model.safetensors, else the shards that model.safetensors.index.json names. Tensors of
/// a shard that the index does not name are skipped. Immutable; any thread may read.
class HfWeights {
 public:
  /// Opens the shards and checks every header against the index. Throws InputError if
  /// there are no weights (with what lies there instead), if a shard is missing (with its
  /// name and the count of present shards), or if index and shards disagree. They also
  /// disagree if a tensor has several copies and the index names another one than the
  /// last by the shards' names, which transformers takes.
  static HfWeights open(const fs::path& dir);
  HfWeights(HfWeights&&) = default;

  const fs::path& dir() const { return dir_; }
  /// Returns the whole tensors by name, with their stored dtypes.
  std::vector<TensorSlice> tensors() const;
  bool has(const std::string& name) const { return where_.contains(name); }
  /// Fills `out` with the elements of `box`, row-major in its extent, converted to `dst`
  /// (F32, BF16, F16, F64). Throws InputError if the tensor is absent, its shape differs
  /// or its dtype is no float type.
  void read(const TensorSlice& box, DType dst, std::span<std::byte> out) const;

  /// Where a tensor is stored.
  struct Location {
    TensorSlice whole;
    size_t file = 0;      ///< index into files()
    uint64_t offset = 0;  ///< offset of the first byte in the file's data
  };
  /// Returns where a tensor is stored, or nothing if there is none of that name.
  std::optional<Location> locate(const std::string& name) const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  const std::vector<HfShard>& shards() const { return shards_; }
  /// Returns what was not read, one line each: tensors that are buffers or that the index
  /// does not name in their shard, and files beside the weights.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  HfWeights() = default;
  struct Place {
    size_t file = 0;
    const SafetensorsEntry* entry = nullptr;
  };
  void add_shard(const std::string& name, const HfIndex* index,
                 const std::string& chosen);
  /// Throws InputError if the index names a tensor that was not found in its shard.
  void check_index(const HfIndex& index, const std::string& chosen) const;

  fs::path dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<HfShard> shards_;
  std::map<std::string, Place> where_;
  std::vector<std::string> ignored_;
};

/// Returns the shards of a directory without opening them, for a report on an incomplete
/// copy. Returns none if the directory has no safetensors weights. Throws InputError if
/// config.json or the index name no file of the directory.
std::vector<HfShard> list_hf_shards(const fs::path& dir);

/// Returns whether a tensor is a buffer that old exports stored beside the weights
/// (rotary_emb.inv_freq).
bool is_stray_hf_tensor(const std::string& name);

}  // namespace longhaul::format
