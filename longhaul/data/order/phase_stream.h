#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/order/cursor.h"
#include "longhaul/data/order/mixture.h"
#include "longhaul/data/order/permutation.h"

namespace longhaul::data {

/// How much of a source training has had in all phases.
struct SourceCount {
  std::string name;
  std::string fingerprint;
  int64_t sequences = 0;
  int64_t tokens = 0;
  bool operator==(const SourceCount&) const = default;
};

/// The order of one phase of a run: which sequence of which source comes at which
/// position. Only one thread at a time may use a stream.
class PhaseStream {
 public:
  /// Makes the order of the last phase of a list that has at least one phase. The earlier
  /// phases say how far the last phase's sources were read. The time depends on the
  /// number of phases, not on their lengths.
  explicit PhaseStream(const std::vector<Phase>& phases);

  struct Place {
    size_t source = 0;  ///< number of the source in the phase
    int64_t index = 0;  ///< number of the sequence in the source
  };
  /// Returns the n-th sequence of the phase that is not skipped.
  Place place(int64_t n);
  /// Returns each n below `consumed` whose place(n) is sequence `index` of source
  /// `source`, ascending. The time depends on the number of passes over the source.
  std::vector<int64_t> uses(size_t source, int64_t index, int64_t consumed) const;

  /// Returns how many sequences of each source of the phase training has had after
  /// `consumed` sequences of the phase. A pass at another sequence length has another
  /// number of sequences. What training had of such a pass counts as the same share of a
  /// pass of this phase.
  std::vector<double> had(int64_t consumed) const;
  /// Returns what training has had after `consumed` sequences of the phase: first the
  /// sources of this phase in their order, then the sources of earlier phases only.
  /// Skipped sequences are not counted.
  std::vector<SourceCount> counts(int64_t consumed) const;
  const Mixture& mixture() const { return mixture_; }
  const Phase& phase() const { return phase_; }

 private:
  Permutation order_of(size_t source, int64_t epoch) const;
  struct Order {
    int64_t epoch = -1;
    std::optional<Permutation> permutation;
  };
  Phase phase_;
  Mixture mixture_;
  std::vector<int64_t> first_ordinals_;
  std::vector<double> had_before_;  ///< by source: what had() counts of earlier phases
  std::vector<SourceCount> earlier_;
  std::vector<uint64_t> keys_;
  std::vector<Order> orders_;  ///< by source: the order of its latest epoch
};

/// Returns what training has had of each source up to a cursor.
std::vector<SourceCount> source_counts(const Cursor& cursor);

}  // namespace longhaul::data
