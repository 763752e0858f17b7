#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/imports/llama_merge.h"

namespace longhaul::imports {

/// Puts the heads of attention back in order: each key and value head once, query heads
/// (rows of q_proj, columns of o_proj) where they belong. The first keys that are seen
/// tell how often heads are held and in which order; everything after must agree.
class KvHeads {
 public:
  KvHeads(const ForeignFiles& files, const families::Network& network,
          const MergeOptions& options, MergeReport& report);

  /// Keys or values from the parts of all ranks; copies are compared and dropped.
  Mosaic key(const std::vector<Mosaic>& parts, const std::string& name);
  /// Query heads along `dim`: 0 of q_proj, 1 of o_proj.
  Mosaic query(const std::vector<Mosaic>& parts, size_t dim, const std::string& name);

 private:
  void choose_order(const Mosaic& keys, const std::string& name);
  Mosaic head(const Mosaic& tensor, int64_t index) const;
  /// How far the copies are from each other if `order` is right: sum of absolute
  /// differences.
  double distance(const Mosaic& keys, KvOrder order) const;
  int64_t key_slot(int64_t head, int64_t copy, KvOrder order) const;

  const ForeignFiles& files_;
  const families::Network& network_;
  const int64_t head_dim_;
  const MergeOptions& options_;
  MergeReport& report_;
  bool known_ = false;  // the multiplier
};

}  // namespace longhaul::imports
