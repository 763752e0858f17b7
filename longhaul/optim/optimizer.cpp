#include "longhaul/optim/optimizer.h"

#include <cmath>
#include <map>

#include "longhaul/optim/adamw.h"
#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::optim {
namespace {

at::Tensor part(const at::Tensor& flat, FlatRange range) {
  return flat.narrow(0, range.begin, range.size());
}

double squares(const at::Tensor& gradient) {
  if (!gradient.is_cpu()) return sum_of_squares_composite(gradient);
  return sum_of_squares(gradient.data_ptr(), gradient.numel(),
                        from_scalar_type(gradient.scalar_type()));
}

void update(const AdamWTensors& t, const AdamWStep& step) {
  if (!t.master.is_cpu()) {
    adamw_composite(t, step);
    return;
  }
  adamw_update({t.master.numel(), t.gradient.data_ptr(),
                from_scalar_type(t.gradient.scalar_type()), t.master.data_ptr<float>(),
                t.exp_avg.data_ptr(), t.exp_avg_sq.data_ptr(),
                from_scalar_type(t.exp_avg.scalar_type()), t.weight.data_ptr(),
                from_scalar_type(t.weight.scalar_type())},
               step);
}

}  // namespace

Optimizer::Optimizer(FlatBuffers& flat, const OptimizerSection& settings,
                     const Ownership& owned)
    : flat_(flat), settings_(settings) {
  const DTypePolicy& policy = flat.policy();
  for (const Bucket& bucket : flat.buckets()) {
    BucketState state;
    state.range = owned(bucket);
    const int64_t size = state.range.size();
    const auto make = [&](DType dtype) {
      return allocate_flat(size, to_scalar_type(dtype), flat.device());
    };
    if (policy.master == policy.compute) {
      state.master = part(bucket.weights, state.range);
    } else {
      state.master = make(policy.master);
      state.master.copy_(part(bucket.weights, state.range));
    }
    if (!bucket.kind.frozen) {
      state.exp_avg = make(policy.moments);
      state.exp_avg_sq = make(policy.moments);
    }
    states_.push_back(std::move(state));
  }
}

double Optimizer::gradient_norm(comm::Communicator& data, bool sharded) const {
  // Name order, so that the sum does not depend on how buckets were filled.
  std::map<std::string, double> by_name;
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!buckets[i].grads.defined()) continue;
    for (const FlatMember& member : buckets[i].members)
      by_name[member.parameter->name()] = 0.0;
    for (const FlatPiece& piece : pieces_in(buckets[i], states_[i].range)) {
      const at::Tensor gradient =
          buckets[i].grads.narrow(0, piece.in_bucket, piece.in_member.size());
      by_name[piece.member->parameter->name()] += squares(gradient);
    }
  }
  std::vector<double> sums;
  for (const auto& [name, sum] : by_name) sums.push_back(sum);
  if (sharded) {
    data.all_reduce_wait({sums.data(), static_cast<int64_t>(sums.size()), DType::F64},
                         comm::ReduceOp::Sum);
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

void Optimizer::step(double lr, double gradient_scale) {
  ++updates_;
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    const BucketState& state = states_[i];
    if (bucket.kind.frozen) continue;
    update(
        {part(bucket.grads, state.range), state.master, state.exp_avg, state.exp_avg_sq,
         part(bucket.weights, state.range)},
        {settings_.convention, settings_.betas[0], settings_.betas[1], settings_.eps,
         lr * bucket.kind.lr_scale, bucket.kind.weight_decay, gradient_scale, updates_});
  }
}

void Optimizer::publish_masters() {
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    part(buckets[i].weights, states_[i].range).copy_(states_[i].master);
  }
}

int64_t Optimizer::bytes() const {
  const bool shared = flat_.policy().master == flat_.policy().compute;
  int64_t total = 0;
  for (const BucketState& state : states_) {
    if (!shared) total += static_cast<int64_t>(state.master.nbytes());
    if (!state.exp_avg.defined()) continue;
    total += static_cast<int64_t>(state.exp_avg.nbytes() + state.exp_avg_sq.nbytes());
  }
  return total;
}

}  // namespace longhaul::optim
