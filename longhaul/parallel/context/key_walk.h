#pragma once

#include <memory>

#include "longhaul/comm/communicator.h"
#include "longhaul/parallel/context/local_attention.h"

namespace longhaul::parallel {

/// The way of keys through a context-parallel group. Keys are here all tensors that
/// attention keeps of a rank's positions, such as keys and values. The keys of one rank
/// after the other come to this rank, and their gradients go back. A walk does not know
/// what the tensors are. A rank's own keys come first. One walk serves one forward, or
/// one backward. Making a walk, next(), pass_on() and total() are Collective. The group
/// must outlive the walk.
class KeyWalk {
 public:
  virtual ~KeyWalk() = default;
  /// Returns the rank whose keys are here now.
  virtual int source() const = 0;
  virtual KeptPositions current() const = 0;
  /// Goes on to the keys of the next rank. Returns false when the keys of all ranks have
  /// been here.
  virtual bool next() = 0;
  /// Lets the transfers that are under way make progress, without waiting for them.
  virtual void poll() {}

  /// Returns the fp32 tensors to which this rank adds its share of the gradients of the
  /// current keys.
  virtual KeptPositions share() = 0;
  /// Passes on the share of the current keys, which is complete.
  virtual void pass_on(const KeptPositions& share) = 0;
  /// Returns the gradients of this rank's own keys, summed over all ranks, after the last
  /// share.
  virtual KeptPositions total() = 0;
};

/// Passes keys round a ring (Liu et al., "Ring Attention with Blockwise
/// Transformers"). The keys of ranks r, r - 1, r - 2 ... come to rank r in this order;
/// the next keys travel while the queries meet the current keys. The fp32 sums of the
/// gradients follow the keys from rank r + 1 round to rank r. The shares add up in this
/// order, r's own share last, so that the sums have the same bits in every run.
///
/// The keys of a rank have n elements of e bytes in all: 2 B * S * Hkv * D for keys and
/// values. Each of N ranks sends (N - 1) n e bytes in the forward. In the backward a rank
/// sends (N - 1) n (e + 4) bytes.
/// A rank holds the keys of two ranks, and in the backward up to four fp32 sets of their
/// gradients.
std::unique_ptr<KeyWalk> ring_walk(comm::Communicator& group, const KeptPositions& own);

/// Gathers the keys of all ranks at once (Meta, "The Llama 3 Herd of Models",
/// section 3.3.2). This takes fewer and longer messages and more memory than a ring, and
/// is good if keys are few (grouped queries) or the group is small. The keys of ranks
/// r, r + 1, r + 2 ... come to rank r in this order. A reduce_scatter sums the gradients
/// in fp32, in rank order.
///
/// A rank sends as many bytes as with ring_walk(), whose comment gives their number.
/// A rank holds the keys of all N ranks, and in the backward an fp32 set of their
/// gradients.
std::unique_ptr<KeyWalk> gather_walk(comm::Communicator& group, const KeptPositions& own);

}  // namespace longhaul::parallel
