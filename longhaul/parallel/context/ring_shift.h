#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::parallel {

/// Tensors on their way to the next rank of the ring, while tensors of the same shapes
/// come from the rank before. They stay alive and must stay unwritten until take().
/// Collective: every rank of the group starts its shifts in the same order.
class RingShift {
 public:
  RingShift(comm::Communicator& group, std::vector<at::Tensor> sent);
  RingShift(const RingShift&) = delete;
  RingShift& operator=(const RingShift&) = delete;
  ~RingShift();

  /// Drives it a little, without waiting.
  void poll() { work_->test(); }
  /// What came; on a device what is put into the current stream from now on may use it.
  std::vector<at::Tensor> take();

 private:
  std::vector<at::Tensor> sent_, received_;
  comm::WorkPtr work_;
};

}  // namespace longhaul::parallel
