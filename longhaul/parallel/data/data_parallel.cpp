#include "longhaul/parallel/data/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/tensor/buffer_of.h"

namespace longhaul::parallel {
namespace {

/// The most reductions that may be under way while the next unit computes, if gradients
/// are freed after their reduction. Until then each reduction holds the memory of a whole
/// unit's gradients.
constexpr size_t kReductionsAhead = 1;

}  // namespace

DataParallel::DataParallel(tensor::FlatBuffers& flat, DataGroups groups)
    : flat_(flat), groups_(std::move(groups)) {
  const layout::FlatSharding& s = flat.sharding();
  LH_ASSERT(groups_.shard->size() == s.shards && groups_.replicas->size() == s.replicas,
            "buckets are cut for {} x {} ranks, the groups have {} x {}", s.shards,
            s.replicas, groups_.shard->size(), groups_.replicas->size());
  for (const tensor::Bucket& bucket : flat.buckets())
    units_ = std::max(units_, bucket.unit + 1);
  gathers_.resize(flat.buckets().size());
  reduced_.resize(flat.buckets().size());
}

template <typename Do>
void DataParallel::for_unit(int unit, const Do& act) {
  for (size_t i = 0; i < flat_.buckets().size(); ++i) {
    if (flat_.buckets()[i].unit == unit) act(i, flat_.buckets()[i]);
  }
}

void DataParallel::prefetch(int unit) {
  if (unit < 0 || unit >= units_) return;
  for_unit(unit, [&](size_t i, tensor::Bucket& bucket) {
    if (bucket.weights.defined()) return;
    flat_.hold_weights(bucket);
    gathers_[i] = groups_.shard_of(bucket).all_gather(
        tensor::buffer_of(bucket.owned_weights), tensor::buffer_of(bucket.weights));
  });
}

void DataParallel::settle_weights(size_t index) {
  if (gathers_[index]) std::exchange(gathers_[index], nullptr)->order();
}

void DataParallel::need(int unit) {
  prefetch(unit);
  const auto settle = [&](size_t i, tensor::Bucket&) { settle_weights(i); };
  for_unit(unit, settle);
  for_unit(layout::kResidentUnit, settle);
}

void DataParallel::release(int unit) {
  for_unit(unit, [&](size_t i, tensor::Bucket& bucket) {
    // A gather that nobody has waited for still writes to the weights.
    if (!gathers_[i]) flat_.release_weights(bucket);
  });
}

void DataParallel::share_weights(Written written) {
  // The buckets are in the order of the backward. The loop begins with the last bucket,
  // so that the weights that the forward needs first are gathered first.
  for (size_t i = flat_.buckets().size(); i-- > 0;) {
    tensor::Bucket& bucket = flat_.buckets()[i];
    if (!bucket.weights_stay || groups_.shard_of(bucket).size() == 1) continue;
    if (bucket.frozen && written == Written::Trained) continue;
    settle_weights(i);
    gathers_[i] = groups_.shard_of(bucket).all_gather(
        tensor::buffer_of(bucket.owned_weights), tensor::buffer_of(bucket.weights));
  }
}

void DataParallel::finish_weights() {
  for (size_t i = 0; i < gathers_.size(); ++i) settle_weights(i);
}

void DataParallel::open_gradients(int unit) {
  for_unit(unit, [&](size_t /*index*/, tensor::Bucket& bucket) {
    if (bucket.grads_stay || bucket.frozen) return;
    // Reductions of the previous micro batch began before this forward pass and have
    // probably ended. The rank waits for their end here, so that this unit can use their
    // memory.
    const bool before = std::any_of(
        reductions_.begin(), reductions_.end(),
        [&](const Reduction& r) { return flat_.buckets()[r.bucket].unit <= unit; });
    end_reductions(before ? 0 : kReductionsAhead);
    if (bucket.grads.defined()) return;
    flat_.hold_grads(bucket);
  });
}

void DataParallel::close_gradients(int unit, bool last) {
  for_unit(unit, [&](size_t i, tensor::Bucket& bucket) {
    if (bucket.frozen || (bucket.grads_stay && !last)) return;
    reduced_[i] = reduced_[i] || last;
    start_reduction(i);
  });
}

void DataParallel::start_reduction(size_t index) {
  tensor::Bucket& bucket = flat_.buckets()[index];
  LH_ASSERT(bucket.grads.defined(), "unit {} has no gradients to reduce", bucket.unit);
  bucket.settle_grads();
  comm::Communicator& shard = groups_.shard_of(bucket);
  comm::Communicator& replicas = groups_.replicas_of(bucket);
  // With one shard the replicas hold whole buckets. Otherwise the replicas are summed at
  // the step's end.
  const bool whole = shard.size() == 1;
  if (whole && replicas.size() == 1) return;
  Reduction reduction{index, nullptr, bucket.grads, {}};
  comm::Communicator& group = whole ? replicas : shard;
  const comm::Label label(group.ledger(), fmt::format("gradient bucket {}", index));
  // The wire dtype may be narrower than the accumulator.
  const auto wire = tensor::to_scalar_type(flat_.policy().reduce);
  if (wire != bucket.grads.scalar_type()) {
    reduction.sent = flat_.take_scratch(bucket.num_elements, wire);
    reduction.sent.copy_(bucket.grads);
  }
  if (whole) {
    reduction.received = reduction.sent;
    reduction.work =
        group.all_reduce(tensor::buffer_of(reduction.sent), comm::ReduceOp::Sum);
  } else {
    reduction.received = received_by(bucket, reduction.sent);
    reduction.work =
        group.reduce_scatter(tensor::buffer_of(reduction.sent),
                             tensor::buffer_of(reduction.received), comm::ReduceOp::Sum);
  }
  reductions_.push_back(std::move(reduction));
}

/// Returns the tensor that receives this rank's part of a reduction of `sent`.
at::Tensor DataParallel::received_by(const tensor::Bucket& bucket,
                                     const at::Tensor& sent) {
  if (!bucket.owned_apart) return sent.narrow(0, bucket.owned.begin, bucket.owned.size());
  if (bucket.grads_stay && sent.is_same(bucket.grads)) return bucket.owned_grads;
  return flat_.take_scratch(bucket.owned.size(), sent.scalar_type());
}

void DataParallel::end_reduction(Reduction& reduction) {
  tensor::Bucket& bucket = flat_.buckets()[reduction.bucket];
  reduction.work->order();
  if (!bucket.grads_stay) {
    bucket.owned_grads.add_(reduction.received);
  } else if (!reduction.sent.is_same(bucket.grads)) {
    bucket.owned_grads.copy_(reduction.received);
  }
  if (bucket.owned_apart && !reduction.received.is_same(bucket.owned_grads)) {
    flat_.give_scratch(std::move(reduction.received));
  }
  if (!reduction.sent.is_same(bucket.grads)) {
    flat_.give_scratch(std::move(reduction.sent));
  }
  flat_.release_grads(bucket);
}

void DataParallel::end_reductions(size_t left) {
  while (reductions_.size() > left) {
    end_reduction(reductions_.front());
    reductions_.erase(reductions_.begin());
  }
}

void DataParallel::sum_owned(comm::Communicator& group, tensor::Bucket& bucket) {
  if (group.size() == 1) return;
  const auto wire = tensor::to_scalar_type(flat_.policy().reduce);
  const at::Tensor sent = bucket.owned_grads.to(wire);
  group.all_reduce_order(tensor::buffer_of(sent), comm::ReduceOp::Sum);
  if (!sent.is_same(bucket.owned_grads)) bucket.owned_grads.copy_(sent);
}

/// Gives all ranks that hold the same bucket one gradient: the sum of their gradients, or
/// the gradient of the first of these ranks.
void DataParallel::make_one(tensor::Bucket& bucket) {
  comm::Communicator& group = *groups_.sums.at(static_cast<size_t>(bucket.sum_group - 1));
  if (bucket.sum_group != layout::kTensorFirst) {
    sum_owned(group, bucket);
  } else if (group.size() > 1) {
    group.broadcast(tensor::buffer_of(bucket.owned_grads), 0)->order();
  }
}

void DataParallel::finish_gradients() {
  auto& buckets = flat_.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].frozen) continue;
    if (!reduced_[i] && buckets[i].grads.defined()) start_reduction(i);
    reduced_[i] = false;
  }
  end_reductions(0);
  for (tensor::Bucket& bucket : buckets) {
    if (bucket.frozen) continue;
    if (groups_.shard_of(bucket).size() > 1) {
      sum_owned(groups_.replicas_of(bucket), bucket);
    }
    if (bucket.sum_group != layout::kNoSum) make_one(bucket);
  }
}

void DataParallel::abandon() {
  for (comm::WorkPtr& work : gathers_) work.reset();
  reductions_.clear();
}

}  // namespace longhaul::parallel
