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

namespace longhaul {

/// model.safetensors.index.json.
struct HfIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor -> file name
  uint64_t total_size = 0;                        ///< 0 when the index does not say
  /// InputError for a name that leaves the directory, a wrong type, an empty map.
  static HfIndex read(const fs::path& path);
  /// The same for the text of such a file.
  static HfIndex parse(std::string_view text, const fs::path& path);
};

/// A shard as the directory has it.
struct HfShard {
  std::string name;
  bool present = false;
  uint64_t size = 0;
  uint64_t tensors = 0;  ///< that the index names in it
  /// Its name, and why it is missing where that is not plain: "a.safetensors (a link to
  /// ../blobs/1f, where nothing is)".
  std::string described;
};

/// The weights of a Hugging Face directory, which may hold several sets. As transformers
/// chooses: what transformers_weights in config.json names, else model.safetensors, else
/// the shards that model.safetensors.index.json names. Tensors of a shard that its index
/// does not name are passed over. Immutable; any thread may read.
class HfWeights {
 public:
  /// Opens and checks every shard's header against the index. InputError when there are
  /// no weights (saying what lies there instead), a shard is missing (named, with the
  /// count of present ones), or index and shards disagree: also where the index and the
  /// order of the shards' names, by which transformers lets the last one win, pick
  /// different copies of a tensor.
  static HfWeights open(const fs::path& dir);
  HfWeights(HfWeights&&) = default;

  const fs::path& dir() const { return dir_; }
  /// Whole tensors by name, with their stored dtypes.
  std::vector<TensorSlice> tensors() const;
  bool has(const std::string& name) const { return where_.contains(name); }
  /// Fills `out` with the elements of `box`, row-major in its extent, converted to `dst`
  /// (F32, BF16, F16, F64). InputError when the tensor is absent, its shape differs or
  /// its dtype is no float type.
  void read(const TensorSlice& box, DType dst, std::span<std::byte> out) const;

  /// Where a tensor lies.
  struct Location {
    TensorSlice whole;
    size_t file = 0;      ///< index into files()
    uint64_t offset = 0;  ///< of its first byte in the file's data
  };
  /// Nothing where there is no such tensor.
  std::optional<Location> locate(const std::string& name) const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  const std::vector<HfShard>& shards() const { return shards_; }
  /// What was passed over by rule, one line each.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// "format" and others of the first shard's __metadata__.
  const std::map<std::string, std::string>& metadata() const;

 private:
  HfWeights() = default;
  struct Place {
    size_t file = 0;
    const SafetensorsEntry* entry = nullptr;
  };
  void add_shard(const std::string& name, const HfIndex* index,
                 const std::string& chosen);
  /// InputError where the index names a tensor that was not found where it says.
  void check_index(const HfIndex& index, const std::string& chosen) const;

  fs::path dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<HfShard> shards_;
  std::map<std::string, Place> where_;
  std::vector<std::string> ignored_;
};

/// The shards of a directory without opening them: for a report on an incomplete copy.
/// Empty when the directory has no safetensors weights. InputError where config.json or
/// the index name no file of the directory.
std::vector<HfShard> list_hf_shards(const fs::path& dir);

/// True for buffers that old exports stored beside the weights (rotary_emb.inv_freq).
bool is_stray_hf_tensor(const std::string& name);

}  // namespace longhaul
