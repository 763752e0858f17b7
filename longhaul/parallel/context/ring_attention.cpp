#include "longhaul/parallel/context/ring_attention.h"

#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "longhaul/ops/node.h"
#include "longhaul/parallel/context/local_attention.h"
#include "longhaul/parallel/context/ring_shift.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// Keys and values of this rank, then of the one before, and so on round the ring; the
/// next ones are always on their way.
class KeyRing {
 public:
  KeyRing(comm::Communicator& group, const KeyValues& own)
      : group_(group), current_(own) {
    send();
  }

  /// The rank whose keys are here now.
  int source() const { return (group_.rank() - step_ + group_.size()) % group_.size(); }
  const KeyValues& current() const { return current_; }
  /// Goes on to the next rank's; false when all have been here.
  bool next() {
    if (!shift_) return false;
    const auto received = shift_->take();
    shift_.reset();
    current_ = {received[0], received[1]};
    ++step_;
    send();
    return true;
  }
  void poll() {
    if (shift_) shift_->poll();
  }

 private:
  void send() {
    if (step_ + 1 == group_.size()) return;
    shift_.emplace(group_, std::vector<at::Tensor>{current_.keys, current_.values});
  }

  comm::Communicator& group_;
  KeyValues current_;
  std::optional<RingShift> shift_;
  int step_ = 0;
};

/// The gradients of the keys on their way home, one rank's share after the other.
class GradientRing {
 public:
  GradientRing(comm::Communicator& group, KeyValues own)
      : group_(group), own_(std::move(own)) {}

  /// Adds this rank's share for the keys of the ring's next step and sends the sum on.
  void add(const KeyValues& share) {
    if (shift_) receive(share);
    shift_.emplace(group_, std::vector<at::Tensor>{share.keys, share.values});
  }
  void poll() {
    if (shift_) shift_->poll();
  }
  /// The sum over all ranks for this rank's own keys.
  KeyValues finish() {
    if (shift_) receive(own_);
    return own_;
  }

 private:
  void receive(const KeyValues& into) {
    const auto sums = shift_->take();
    shift_.reset();
    into.keys.add_(sums[0]);
    into.values.add_(sums[1]);
  }

  comm::Communicator& group_;
  KeyValues own_;
  std::optional<RingShift> shift_;
};

struct RingTask {
  comm::Communicator* group;
  ops::AttentionMask mask;
  bool fused;

  LocalAttention local(const at::Tensor& q) const {
    return {{q.size(1) * group->size(), group->size()}, group->rank(), q, mask, fused};
  }
};

struct RingNode : ops::Function<RingNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, RingTask task) {
    const LocalAttention local = task.local(q);
    AttentionSums sums = local.begin();
    KeyRing ring(*task.group, {k.contiguous(), v.contiguous()});
    do {
      local.forward(ring.source(), ring.current(), sums, [&] { ring.poll(); });
    } while (ring.next());
    at::Tensor out = sums.out.to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, sums.lse});
    ops::save(ctx, std::move(task));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto& task = ops::saved<RingTask>(ctx);
    const LocalAttention local = task.local(t[0]);
    const at::Tensor dout = grads[0].contiguous();
    at::Tensor dq = local.begin_gradient();
    KeyRing ring(*task.group, {t[1].contiguous(), t[2].contiguous()});
    KeyValues own = zero_gradients(ring.current());
    GradientRing sums(*task.group, own);
    for (bool first = true;; first = false) {
      KeyValues share = first ? own : zero_gradients(own);
      local.backward(ring.source(), ring.current(), dout, t[3], t[4], dq, share, [&] {
        ring.poll();
        sums.poll();
      });
      if (!first) sums.add(share);
      if (!ring.next()) break;
    }
    const KeyValues total = sums.finish();
    const auto type = t[0].scalar_type();
    return {dq.to(type), total.keys.to(type), total.values.to(type), Variable()};
  }
};

}  // namespace

at::Tensor ring_attention(comm::Communicator& group, const at::Tensor& q,
                          const at::Tensor& k, const at::Tensor& v,
                          const ops::AttentionMask& mask, bool fused) {
  return RingNode::apply(q, k, v, RingTask{&group, mask, fused});
}

}  // namespace longhaul::parallel
