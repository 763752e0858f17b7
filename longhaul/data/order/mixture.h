#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::data {

/// Deals a stream of sequences to several sources in proportion to their weights.
/// Sequence g of the stream is computed alone (O(number of sources) at worst), so any
/// position is found without replay. The sources form a Huffman tree; at each node the
/// first n sequences hold round(n * share) of the heavier side, in integer arithmetic. So
/// each prefix of the stream holds each source's share to within one sequence for up to
/// three sources and to within two for any number. Immutable; any thread may use it.
class Mixture {
 public:
  struct Pick {
    int source = 0;
    int64_t ordinal = 0;  ///< how many earlier sequences of the stream are this source's
  };

  /// Weights are relative; each must be positive and finite (ConfigError).
  explicit Mixture(const std::vector<double>& weights);
  int num_sources() const { return num_sources_; }
  /// 0 <= sequence <= 2^62.
  Pick pick(int64_t sequence) const;
  /// Per source, how many of the first `sequences` of the stream are its own.
  std::vector<int64_t> counts(int64_t sequences) const;

 private:
  struct Node {
    int source = -1;  ///< of a leaf
    int left = -1;
    int right = -1;
    uint64_t share = 0;  ///< of the left side, in units of 2^-64
  };
  int build(const std::vector<double>& weights);
  std::vector<Node> nodes_;
  int root_ = 0;
  int num_sources_ = 0;
};

}  // namespace longhaul::data
