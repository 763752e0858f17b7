#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/entry.h"
#include "longhaul/comm/over_host.h"
#include "longhaul/device/tensor_collectives.h"

namespace longhaul::device {

/// A group of the same ranks as `host`, for tensors of a device whose library takes
/// tensors. All-reduce, all-gather, reduce-scatter and broadcast go to the library.
/// Transfers, all-to-all, and memory that is no tensor's go through the host by `staged`:
/// such a library has no sends. An error of the library is a TemporaryError that names
/// the operation.
class TensorGroup final : public comm::OverHost {
 public:
  /// Makes the library's group. Both `library` and `host` must outlive it. Collective.
  TensorGroup(TensorCollectives& library, comm::Communicator& host,
              std::unique_ptr<comm::Communicator> staged);

  comm::WorkPtr start(comm::Request request) override;
  /// Is not offered: groups are split on the host first.
  std::unique_ptr<comm::Communicator> split(int color, int key,
                                            std::string name) override;
  const comm::CommCounts& counts() const override { return counts_; }

 private:
  TensorCollectives& library_;
  std::unique_ptr<comm::Communicator> staged_;
  comm::GroupRank place_;
  int64_t group_;
  comm::CommCounts counts_;
  comm::OperationNumbers numbers_;
};

}  // namespace longhaul::device
