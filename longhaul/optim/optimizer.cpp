#include "longhaul/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/optim/adamw.h"
#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::optim {
namespace {

at::Tensor part(const at::Tensor& flat, FlatRange range) {
  return flat.narrow(0, range.begin, range.size());
}

/// Owned elements side by side that are updated alike; counted from the owned range's
/// start.
struct ClassRun {
  ParameterClass kind;
  FlatRange range;
};

/// A padding goes with the tensor before it: zeros stay zeros under any class.
std::vector<ClassRun> runs_of(const Bucket& bucket) {
  std::vector<ClassRun> runs;
  for (size_t i = 0; i < bucket.members.size(); ++i) {
    const FlatMember& member = bucket.members[i];
    const int64_t next =
        i + 1 < bucket.members.size() ? bucket.members[i + 1].begin : bucket.num_elements;
    const int64_t begin = std::max(member.begin, bucket.owned.begin);
    const int64_t end = std::min(next, bucket.owned.end);
    if (begin >= end) continue;
    const FlatRange range{begin - bucket.owned.begin, end - bucket.owned.begin};
    if (!runs.empty() && runs.back().kind == member.kind) {
      runs.back().range.end = range.end;
    } else {
      runs.push_back({member.kind, range});
    }
  }
  return runs;
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

Optimizer::Optimizer(FlatBuffers& flat, const OptimizerSection& settings)
    : flat_(flat), settings_(settings) {
  const DTypePolicy& policy = flat.policy();
  for (const Bucket& bucket : flat.buckets()) {
    BucketState state;
    const int64_t size = bucket.owned.size();
    const auto make = [&](DType dtype) {
      return allocate_flat(size, to_scalar_type(dtype), flat.device());
    };
    if (policy.master == policy.compute) {
      state.master = bucket.owned_weights;
    } else {
      state.master = make(policy.master);
      state.master.copy_(bucket.owned_weights);
    }
    if (!bucket.frozen) {
      state.exp_avg = make(policy.moments);
      state.exp_avg_sq = make(policy.moments);
    }
    states_.push_back(std::move(state));
  }
}

double Optimizer::gradient_norm(comm::Communicator& world,
                                const std::vector<std::string>& names) const {
  std::map<std::string, double> by_name;
  for (const Bucket& bucket : flat_.buckets()) {
    if (bucket.frozen) continue;
    for (const FlatPiece& piece : pieces_in(bucket, bucket.saved)) {
      const at::Tensor gradient = bucket.owned_grads.narrow(
          0, piece.in_bucket - bucket.owned.begin, piece.in_member.size());
      by_name[piece.member->parameter->name()] += squares(gradient);
    }
  }
  // The order of the names: the sum does not depend on how buckets were filled.
  std::vector<double> sums;
  for (const std::string& name : names) sums.push_back(by_name[name]);
  LH_ASSERT(by_name.size() == names.size(), "parameters that the model does not name");
  world.all_reduce_wait({sums.data(), static_cast<int64_t>(sums.size()), DType::F64},
                        comm::ReduceOp::Sum);
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
    if (bucket.frozen) continue;
    for (const ClassRun& run : runs_of(bucket)) {
      update({part(bucket.owned_grads, run.range), part(state.master, run.range),
              part(state.exp_avg, run.range), part(state.exp_avg_sq, run.range),
              part(bucket.owned_weights, run.range)},
             {settings_.convention, settings_.betas[0], settings_.betas[1], settings_.eps,
              lr * run.kind.lr_scale, run.kind.weight_decay, gradient_scale, updates_});
    }
  }
}

void Optimizer::publish_masters() {
  const auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    buckets[i].owned_weights.copy_(states_[i].master);
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
