#include <ATen/ops/empty_like.h>

#include <memory>
#include <optional>
#include <utility>

#include "longhaul/parallel/context/key_walk.h"
#include "longhaul/tensor/buffer_of.h"

namespace longhaul::parallel {
namespace {

/// Keys, or their gradients, on their way to the next rank of the ring, while those of
/// the rank before arrive. The sent tensors stay alive and must stay unwritten until
/// take(). Collective: every rank of the group starts its shifts in the same order.
class RingShift {
 public:
  RingShift(comm::Communicator& group, const KeptPositions& sent)
      : sent_(sent),
        received_(each_of(sent, [](const at::Tensor& x) { return at::empty_like(x); })) {
    using Kind = comm::Transfer::Kind;
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    std::vector<comm::Transfer> transfers;
    for (size_t i = 0; i < sent.size(); ++i) {
      transfers.push_back({Kind::Send, next, tensor::buffer_of(sent_[i])});
      transfers.push_back({Kind::Recv, before, tensor::buffer_of(received_[i])});
    }
    work_ = group.send_recv(transfers);
  }
  RingShift(const RingShift&) = delete;
  RingShift& operator=(const RingShift&) = delete;
  ~RingShift() {
    if (!work_ || received_.empty()) return;
    // If take() was not called, an exception has interrupted the walk. Peers may still
    // read and write this memory, so that it is never freed; the rank is about to end.
    std::make_unique<KeptPositions>(std::move(sent_)).release();
    std::make_unique<KeptPositions>(std::move(received_)).release();
  }

  void poll() { work_->test(); }
  /// Returns the tensors of the rank before. On a device, later work in the current
  /// stream may use them.
  KeptPositions take() {
    work_->order();
    return std::exchange(received_, {});
  }

 private:
  KeptPositions sent_, received_;
  comm::WorkPtr work_;
};

class RingWalk : public KeyWalk {
 public:
  RingWalk(comm::Communicator& group, const KeptPositions& own)
      : group_(group), current_(own) {
    send_keys();
  }

  int source() const override {
    return (group_.rank() - step_ + group_.size()) % group_.size();
  }
  KeptPositions current() const override { return current_; }
  bool next() override {
    if (!keys_) return false;
    current_ = keys_->take();
    keys_.reset();
    ++step_;
    send_keys();
    return true;
  }
  void poll() override {
    if (keys_) keys_->poll();
    if (gradients_) gradients_->poll();
  }

  KeptPositions share() override {
    const KeptPositions zeros = zero_gradients(current_);
    if (step_ == 0) own_ = zeros;
    return zeros;
  }
  /// Adds to the share the sums that came from the rank before, and sends the result on.
  /// The share of this rank's own keys (step 0) stays here, since total() adds the sums
  /// of all other ranks to it.
  void pass_on(const KeptPositions& share) override {
    if (step_ == 0) return;
    receive_gradients(share);
    gradients_.emplace(group_, share);
  }
  KeptPositions total() override {
    receive_gradients(own_);
    return own_;
  }

 private:
  void send_keys() {
    if (step_ + 1 < group_.size()) keys_.emplace(group_, current_);
  }
  void receive_gradients(const KeptPositions& into) {
    if (!gradients_) return;
    const KeptPositions sums = gradients_->take();
    gradients_.reset();
    for (size_t i = 0; i < sums.size(); ++i) into[i].add_(sums[i]);
  }

  comm::Communicator& group_;
  int step_ = 0;
  KeptPositions current_;
  KeptPositions own_;  ///< gradients of this rank's own keys
  std::optional<RingShift> keys_, gradients_;
};

}  // namespace

std::unique_ptr<KeyWalk> ring_walk(comm::Communicator& group, const KeptPositions& own) {
  return std::make_unique<RingWalk>(group, own);
}

}  // namespace longhaul::parallel
