#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/imports/llama_merge.h"

namespace longhaul::imports {

/// Returns the features of a head of a Llama, whose layers are alike.
int64_t head_dim_of(const families::Network& network);

/// Puts the heads of attention back in order, with each key and value head once and query
/// heads (rows of q_proj, columns of o_proj) in their places. The first keys tell how
/// often heads are held and in which order; all later tensors must agree.
class KvHeads {
 public:
  KvHeads(const ForeignFiles& files, const families::Network& network,
          const MergeOptions& options, MergeReport& report);

  /// Merges keys or values from the parts of all ranks. Copies are compared and dropped.
  Mosaic key(const std::vector<Mosaic>& parts, const std::string& name);
  /// Merges query heads along `dim`: 0 for q_proj, 1 for o_proj.
  Mosaic query(const std::vector<Mosaic>& parts, size_t dim, const std::string& name);

 private:
  void choose_order(const Mosaic& keys, const std::string& name);
  Mosaic head(const Mosaic& tensor, int64_t index) const;
  /// Returns the sum of absolute differences between the copies of each head, if the
  /// heads lie in `order`.
  double distance(const Mosaic& keys, KvOrder order) const;
  int64_t key_slot(int64_t head, int64_t copy, KvOrder order) const;

  const ForeignFiles& files_;
  const families::Network& network_;
  const int64_t head_dim_;
  const MergeOptions& options_;
  MergeReport& report_;
  bool known_ = false;  // the multiplier was found
};

}  // namespace longhaul::imports
