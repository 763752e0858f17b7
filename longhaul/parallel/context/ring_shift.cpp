#include "longhaul/parallel/context/ring_shift.h"

#include <ATen/ops/empty_like.h>

#include <memory>
#include <utility>

#include "longhaul/tensor/buffer_of.h"

namespace longhaul::parallel {

RingShift::RingShift(comm::Communicator& group, std::vector<at::Tensor> sent)
    : sent_(std::move(sent)) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  std::vector<comm::Transfer> transfers;
  for (const at::Tensor& x : sent_) {
    received_.push_back(at::empty_like(x));
    transfers.push_back({comm::Transfer::Kind::Send, next, buffer_of(x)});
    transfers.push_back(
        {comm::Transfer::Kind::Recv, before, buffer_of(received_.back())});
  }
  work_ = group.send_recv(std::move(transfers));
}

RingShift::~RingShift() {
  if (!work_ || received_.empty()) return;
  // Left by an exception: peers may still read and write this memory, so it is not given
  // back; the rank is about to end.
  std::make_unique<std::vector<at::Tensor>>(std::move(sent_)).release();
  std::make_unique<std::vector<at::Tensor>>(std::move(received_)).release();
}

std::vector<at::Tensor> RingShift::take() {
  work_->order();
  sent_.clear();
  return std::exchange(received_, {});
}

}  // namespace longhaul::parallel
