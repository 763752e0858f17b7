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

/// What training has had of a source, over all phases.
struct SourceCount {
  std::string name;
  std::string fingerprint;
  int64_t sequences = 0;
  int64_t tokens = 0;
  bool operator==(const SourceCount&) const = default;
};

/// The order of one phase of a run: which sequence of which source comes at which place.
/// One thread at a time.
class PhaseStream {
 public:
  /// Of the last of these phases (at least one); the earlier ones say how far its sources
  /// were read. Takes as long as their number, whatever their length.
  explicit PhaseStream(const std::vector<Phase>& phases);

  struct Place {
    size_t source = 0;  ///< of the phase
    int64_t index = 0;  ///< sequence of that source
  };
  /// The n-th sequence of the phase that is not skipped.
  Place place(int64_t n);

  /// Per source of the phase: how far it is read, in sequences since its first epoch
  /// began, after `consumed` sequences of the phase. What was passed over counts.
  std::vector<int64_t> ordinals(int64_t consumed) const;
  /// Everything that training has had after `consumed` sequences of the phase: the
  /// sources of this phase in its order, then those of earlier ones only. What was
  /// passed over does not count.
  std::vector<SourceCount> counts(int64_t consumed) const;
  const Mixture& mixture() const { return mixture_; }
  const Phase& phase() const { return phase_; }

 private:
  struct Order {
    int64_t epoch = -1;
    std::optional<Permutation> permutation;
  };
  Phase phase_;
  Mixture mixture_;
  std::vector<int64_t> first_ordinals_;
  std::vector<SourceCount> earlier_;
  std::vector<uint64_t> keys_;
  std::vector<Order> orders_;  ///< of each source's latest epoch
};

/// What training has had of each source, from a cursor alone.
std::vector<SourceCount> source_counts(const Cursor& cursor);

}  // namespace longhaul::data
