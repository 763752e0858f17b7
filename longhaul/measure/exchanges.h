#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// Returns the operations by which the ranks of a layout exchange data in a step, each
/// operation of each group once. `costs` are those of the layout. All ranks get the same
/// list.
std::vector<layout::TrafficLine> exchanges_of(const layout::LayoutDescription& layout,
                                              const layout::LayoutCosts& costs);

/// Returns this rank's group of a kind. Collective over `world`.
std::unique_ptr<comm::Communicator> group_of(comm::Communicator& world,
                                             const layout::Groups& groups,
                                             layout::GroupKind kind);

/// The bytes of the buffers with which an operation is measured: a few messages' worth, a
/// layer's, a bucket's.
inline constexpr std::array<int64_t, 3> kExchangeBytes = {
    int64_t{64} << 10, int64_t{2} << 20, int64_t{32} << 20};

/// Returns a probe for each of kExchangeBytes, whose work are the bytes that this rank
/// sends. `in` and `out` are two buffers of the largest size with zeros, in memory that
/// `group` takes. All three must outlive the probes. Runs the operation once at each
/// size. Collective over `group`, and so is a run of each probe.
std::vector<Probe> exchange_probes(const layout::TrafficLine& line,
                                   comm::Communicator& group, format::DType dtype,
                                   void* in, void* out);

/// The bytes that a rank sent in an operation, and the rate that was measured.
struct SentBytes {
  double bytes = 0.0;
  double bytes_per_s = 0.0;
};
/// Returns the latency and the rate that fit the times of the operations best, by
/// relative errors. The last point has the most bytes. If the fit has no positive rate or
/// a negative latency, the rate of this point is taken alone.
LinkProfile fit_link(std::span<const SentBytes> points);

}  // namespace longhaul::measure
