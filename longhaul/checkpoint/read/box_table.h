#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/checkpoint/read/stored_tensors.h"

namespace longhaul::checkpoint {

/// Which boxes of which tensors lie where in some files: what the sidecars of all ranks
/// say together. Messages begin with `what`, a path or a name. The folder's own use.
class BoxTable {
 public:
  struct Piece {
    std::vector<int64_t> offset;
    std::vector<int64_t> extent;
    size_t file = 0;
    uint64_t begin = 0;  ///< first byte in that file
  };
  struct Tensor {
    TensorSlice whole;
    std::vector<Piece> pieces;
    TensorSlice slice(const Piece& piece) const;
  };
  using Key = std::pair<std::string, std::string>;  ///< kind, name

  /// InputError when the tensor has another shape or dtype than its boxes before.
  void add(size_t file, StoredBox box, const std::string& what);
  /// Drops copies of one box (replicas); the others must not overlap, and tile each
  /// tensor where `whole` says so: InputError.
  void settle(bool whole, const std::string& what);

  const std::map<Key, Tensor>& tensors() const { return tensors_; }
  /// InputError when it is absent or has another global shape than `box`.
  const Tensor& find(const std::string& kind, const TensorSlice& box,
                     const std::string& what) const;
  /// Those that overlap `box`.
  std::vector<StoredTensors::Part> parts_of(const std::string& kind,
                                            const TensorSlice& box,
                                            const std::string& what) const;

 private:
  std::map<Key, Tensor> tensors_;
};

}  // namespace longhaul::checkpoint
