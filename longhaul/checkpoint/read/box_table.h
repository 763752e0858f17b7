#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/checkpoint/read/stored_tensors.h"

namespace longhaul::checkpoint {

/// Knows which boxes of which tensors lie where in some files, as the sidecars of all
/// ranks say. Messages begin with `what`, a path or a name. Used in this folder only.
class BoxTable {
 public:
  struct Piece {
    std::vector<int64_t> offset;
    std::vector<int64_t> extent;
    size_t file = 0;
    uint64_t begin = 0;  ///< first byte in that file
  };
  struct Tensor {
    format::TensorSlice whole;
    std::vector<Piece> pieces;
    format::TensorSlice slice(const Piece& piece) const;
  };
  using Key = std::pair<std::string, std::string>;  ///< kind, name

  /// Adds a box. Throws InputError when the tensor has another shape or dtype than in its
  /// earlier boxes.
  void add(size_t file, StoredBox box, const std::string& what);
  /// Drops copies of a box (replicas). Throws InputError when other boxes overlap, and,
  /// where `whole` is true, when the boxes do not tile each tensor.
  void settle(bool whole, const std::string& what);

  const std::map<Key, Tensor>& tensors() const { return tensors_; }
  /// Returns a tensor. Throws InputError when it is absent or has another global shape
  /// than `box`.
  const Tensor& find(const std::string& kind, const format::TensorSlice& box,
                     const std::string& what) const;
  /// Returns the parts of a tensor that overlap `box`; throws as find() does.
  std::vector<StoredTensors::Part> parts_of(const std::string& kind,
                                            const format::TensorSlice& box,
                                            const std::string& what) const;

 private:
  std::map<Key, Tensor> tensors_;
};

}  // namespace longhaul::checkpoint
