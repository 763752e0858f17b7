#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <utility>

#include "longhaul/comm/communicator.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Experts spread over the ranks of `ep`: rank r has the r-th of equal shares of experts.
/// Each rank sends every row to the rank of its expert and gets the result back, so that
/// no row is dropped (Lepikhin et al. 2020, "GShard", arXiv 2006.16668). The numbers of
/// rows are exchanged as soon as the router has chosen. They come to the host on a stream
/// beside the current one, and the host waits for them when the rows are ready to leave.
/// A row and its weight are one message to a rank, and the messages of all ranks go in
/// one grouped exchange.
///
/// Rows arrive from one rank after the other, each rank's sorted by expert. One more move
/// brings the rows of an expert together, so that the experts are one grouped product on
/// any device. `ep` must outlive the results and their graphs.
class TokenDispatch final : public nn::ExpertDispatch {
 public:
  /// Waits on the host until the device has come to an event. On a CPU it is not called.
  using Wait = std::function<void(const c10::Event&)>;
  TokenDispatch(comm::Communicator& ep, Wait wait) : ep_(ep), wait_(std::move(wait)) {}

  CountsPtr announce(const at::Tensor& chosen, int64_t experts) const override;
  WayPtr send(const CountsPtr& counts, const at::Tensor& x, const at::Tensor& weights,
              const ops::RoutedRows& rows, bool fused) const override;
  Arrived arrive(const WayPtr& way) const override;
  at::Tensor back(const WayPtr& way, at::Tensor rows) const override;

 private:
  /// Returns the stream on which numbers come to the host: the current stream where the
  /// device has no others.
  c10::Stream beside(at::Device device) const;

  comm::Communicator& ep_;
  Wait wait_;
  mutable std::optional<c10::Stream> beside_;
};

}  // namespace longhaul::parallel
