#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/nn/forward_context.h"

namespace longhaul::parallel {

/// Experts spread over the ranks of `ep`: rank r has the r-th of equal shares of experts.
/// Each rank sends every row to the rank of its expert and gets the result back, so that
/// no row is dropped (Lepikhin et al. 2020, "GShard", arXiv 2006.16668). The numbers of
/// rows are exchanged first; the host reads them once for each call of send(), and the
/// backward uses them again. Messages go in one grouped exchange.
///
/// Rows arrive from one rank after the other, each rank's sorted by expert. One more move
/// brings the rows of an expert together, so that the experts are one grouped product on
/// any device. `ep` must outlive the results and their graphs.
class TokenDispatch final : public nn::ExpertDispatch {
 public:
  /// Returns a copy of an int64 tensor on the host.
  using ToHost = std::function<at::Tensor(const at::Tensor&)>;
  TokenDispatch(comm::Communicator& ep, ToHost to_host)
      : ep_(ep), to_host_(std::move(to_host)) {}

  WayPtr send(at::Tensor rows, const at::Tensor& weights,
              const at::Tensor& offsets) const override;
  Arrived arrive(const WayPtr& way) const override;
  at::Tensor back(const WayPtr& way, at::Tensor rows) const override;

 private:
  comm::Communicator& ep_;
  ToHost to_host_;
};

}  // namespace longhaul::parallel
