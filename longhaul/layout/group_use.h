#pragma once

#include <cstdint>

#include "longhaul/layout/layout_description.h"

namespace longhaul::layout {

/// What moves tensors of a device in a group: operations of all its ranks, messages
/// between two of them, or both. Each of the two needs a communicator of its own.
enum class Uses { Collectives, Transfers, Both };

/// How a step uses the groups of one kind on a device.
struct GroupUse {
  Uses uses = Uses::Collectives;
  /// Whether the operations run beside computation, to which they must leave
  /// multiprocessors.
  bool beside = false;
};
GroupUse use_of(GroupKind kind, ContextKind context);

/// Returns the bytes of a device's memory that NCCL is reckoned to take for a rank's
/// groups: kCollectivesBytes for each group with collectives, kTransfersBytes for each
/// peer of one with transfers. NCCL takes most of it at the first operation. Follows from
/// NCCL's buffers (4.0 MiB, 4.7 MiB and 0.5 MiB for its three protocols) in 24 channels
/// and in 16; not measured.
int64_t reckoned_nccl_bytes(const LayoutDescription& layout, const RunConfig& config,
                            int rank);
inline constexpr int64_t kCollectivesBytes = int64_t{224} << 20;
inline constexpr int64_t kTransfersBytes = int64_t{72} << 20;

}  // namespace longhaul::layout
