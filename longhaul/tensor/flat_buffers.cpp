#include "longhaul/tensor/flat_buffers.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "longhaul/base/refused.h"
#include "longhaul/base/text.h"

namespace longhaul::tensor {
namespace {

at::Tensor part(const at::Tensor& flat, layout::FlatRange range) {
  return flat.narrow(0, range.begin, range.size());
}

}  // namespace

layout::FlatRange Bucket::overlap(const FlatMember& member, layout::FlatRange range) {
  const int64_t begin = std::max(range.begin, member.begin);
  const int64_t end = std::min(range.end, member.begin + member.num_elements);
  if (begin >= end) return {};
  return {begin - member.begin, end - member.begin};
}

void Bucket::settle_grads() const {
  for (const FlatMember& member : members) {
    if (member.parameter->grad_unset()) member.parameter->grad();
  }
}

FlatBuffers::FlatBuffers(const std::vector<FlatParameter>& parameters,
                         const DTypePolicy& policy, at::Device device,
                         const layout::FlatSharding& sharding,
                         int64_t max_bucket_elements)
    : policy_(policy), device_(device), sharding_(sharding) {
  std::vector<layout::PlacedParameter> placed;
  for (const FlatParameter& p : parameters) {
    p.parameter->set_frozen(p.kind.frozen);
    placed.push_back({p.parameter->slice(), p.unit, p.sum_group, p.counted, p.kind.frozen,
                      p.expert, p.joint});
  }
  for (const layout::BucketPlan& plan :
       layout::plan_buckets(placed, sharding, max_bucket_elements)) {
    Bucket& bucket = buckets_.emplace_back();
    static_cast<layout::BucketShape&>(bucket) =
        static_cast<const layout::BucketShape&>(plan);
    for (const layout::BucketMember& member : plan.members) {
      const FlatParameter& p = parameters[member.parameter];
      bucket.members.push_back({p.parameter, p.kind, member.begin, member.num_elements});
    }
    allocate(bucket);
  }
}

void FlatBuffers::allocate(Bucket& bucket) {
  const auto make = [&](int64_t size, format::DType dtype) {
    return allocate_flat(size, to_scalar_type(dtype), device_);
  };
  if (bucket.weights_stay) {
    bucket.weights = make(bucket.num_elements, policy_.compute);
  }
  if (bucket.weights_stay && !bucket.owned_apart) {
    bucket.owned_weights = part(bucket.weights, bucket.owned);
  } else {
    bucket.owned_weights = make(bucket.owned.size(), policy_.compute);
  }
  if (!bucket.frozen && bucket.grads_stay) {
    bucket.grads = make(bucket.num_elements, policy_.gradients);
  }
  if (!bucket.frozen && bucket.grads_stay && !bucket.owned_apart) {
    bucket.owned_grads = part(bucket.grads, bucket.owned);
  } else if (!bucket.frozen) {
    bucket.owned_grads = make(bucket.owned.size(), policy_.gradients);
  }
  bind(bucket);
}

void FlatBuffers::bind(Bucket& bucket) {
  for (const FlatMember& member : bucket.members) {
    const auto view = [&](const at::Tensor& flat) {
      if (!flat.defined()) return at::Tensor();
      return flat.narrow(0, member.begin, member.num_elements)
          .view(member.parameter->slice().extent);
    };
    member.parameter->bind(view(bucket.weights), view(bucket.grads));
  }
}

void FlatBuffers::hold_weights(Bucket& bucket) {
  if (bucket.weights.defined()) return;
  bucket.weights = take_scratch(bucket.num_elements, to_scalar_type(policy_.compute));
  bind(bucket);
}

void FlatBuffers::release_weights(Bucket& bucket) {
  if (bucket.weights_stay || !bucket.weights.defined()) return;
  give_scratch(std::exchange(bucket.weights, at::Tensor()));
  bind(bucket);
}

void FlatBuffers::hold_grads(Bucket& bucket) {
  if (bucket.frozen || bucket.grads.defined()) return;
  bucket.grads = take_scratch(bucket.num_elements, to_scalar_type(policy_.gradients));
  bind(bucket);
  clear_grads(bucket);
}

void FlatBuffers::release_grads(Bucket& bucket) {
  if (bucket.grads_stay || !bucket.grads.defined()) return;
  give_scratch(std::exchange(bucket.grads, at::Tensor()));
  bind(bucket);
}

at::Tensor FlatBuffers::take_scratch(int64_t num_elements, at::ScalarType type) {
  std::vector<at::Tensor>& free = scratch_[{type, num_elements}];
  if (!free.empty()) {
    at::Tensor tensor = std::move(free.back());
    free.pop_back();
    return tensor;
  }
  at::Tensor tensor = allocate_flat(num_elements, type, device_);
  scratch_bytes_ += static_cast<int64_t>(tensor.nbytes());
  return tensor;
}

void FlatBuffers::give_scratch(at::Tensor tensor) {
  std::vector<at::Tensor>& free = scratch_[{tensor.scalar_type(), tensor.numel()}];
  free.push_back(std::move(tensor));
}

void FlatBuffers::zero_grads() {
  for (Bucket& bucket : buckets_) {
    if (bucket.frozen) continue;
    if (bucket.grads_stay) {
      clear_grads(bucket);
    } else {
      bucket.owned_grads.zero_();
    }
  }
}

void FlatBuffers::clear_grads(Bucket& bucket) const {
  // On a device products add to gradients, which must therefore be zeros. One call for
  // the bucket is faster than one for each parameter.
  if (!device_.is_cpu()) {
    bucket.grads.zero_();
    return;
  }
  int64_t end = 0;
  const auto pad = [&](int64_t begin) {
    if (begin > end) part(bucket.grads, {end, begin}).zero_();
  };
  for (const FlatMember& member : bucket.members) {
    pad(member.begin);
    end = member.begin + member.num_elements;
    member.parameter->unset_grad();
  }
  pad(bucket.num_elements);
}

int64_t FlatBuffers::bytes() const {
  int64_t total = scratch_bytes_;
  for (const Bucket& bucket : buckets_) {
    const auto kept = [&](bool stays, const at::Tensor& whole, const at::Tensor& owned) {
      return static_cast<int64_t>((stays ? whole.nbytes() : 0) +
                                  (!stays || bucket.owned_apart ? owned.nbytes() : 0));
    };
    total += kept(bucket.weights_stay, bucket.weights, bucket.owned_weights);
    if (bucket.frozen) continue;
    total += kept(bucket.grads_stay, bucket.grads, bucket.owned_grads);
  }
  return total;
}

at::Tensor allocate_flat(int64_t num_elements, at::ScalarType type, at::Device device) {
  const auto options = at::TensorOptions().dtype(type).device(device);
  if (!device.is_cpu() || num_elements == 0) return at::zeros({num_elements}, options);
  const size_t bytes = static_cast<size_t>(num_elements) * c10::elementSize(type);
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw refused("memory", "memory for a buffer of " + human_bytes(bytes), errno,
                  "use more ranks, a smaller model or smaller dtypes in [precision]");
  }
  ::madvise(address, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      address, {num_elements}, [bytes](void* p) { ::munmap(p, bytes); }, options);
}

}  // namespace longhaul::tensor
