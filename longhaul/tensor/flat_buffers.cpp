#include "longhaul/tensor/flat_buffers.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void materialise(Bucket& bucket, const DTypePolicy& policy, at::Device device) {
  bucket.weights =
      allocate_flat(bucket.num_elements, to_scalar_type(policy.compute), device);
  if (!bucket.kind.frozen) {
    bucket.grads =
        allocate_flat(bucket.num_elements, to_scalar_type(policy.gradients), device);
  }
  for (const FlatMember& member : bucket.members) {
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, member.begin, member.num_elements)
          .view(member.parameter->slice().extent);
    };
    member.parameter->bind(view(bucket.weights),
                           bucket.kind.frozen ? at::Tensor() : view(bucket.grads));
  }
}

}  // namespace

FlatRange Bucket::shard(int index, int shards) const {
  const int64_t size = num_elements / shards;
  return {index * size, (index + 1) * size};
}

FlatRange Bucket::overlap(const FlatMember& member, FlatRange range) {
  const int64_t begin = std::max(range.begin, member.begin);
  const int64_t end = std::min(range.end, member.begin + member.num_elements);
  if (begin >= end) return {};
  return {begin - member.begin, end - member.begin};
}

FlatBuffers::FlatBuffers(const std::vector<ParameterPtr>& parameters,
                         const std::vector<ParameterClass>& classes,
                         const DTypePolicy& policy, at::Device device, int shards,
                         int64_t max_bucket_elements)
    : policy_(policy), device_(device) {
  LH_ASSERT(parameters.size() == classes.size(), "{} parameters, {} classes",
            parameters.size(), classes.size());
  // The open bucket of each class, as an index into buckets_.
  std::vector<size_t> open;
  for (size_t i = parameters.size(); i-- > 0;) {
    const int64_t size = parameters[i]->slice().num_elements();
    const int64_t padded = round_up(size, kFlatAlign);
    auto place = std::find_if(open.begin(), open.end(),
                              [&](size_t b) { return buckets_[b].kind == classes[i]; });
    if (place != open.end() &&
        buckets_[*place].num_elements + padded > max_bucket_elements) {
      open.erase(place);
      place = open.end();
    }
    if (place == open.end()) {
      buckets_.emplace_back().kind = classes[i];
      place = open.insert(open.end(), buckets_.size() - 1);
    }
    Bucket& bucket = buckets_[*place];
    bucket.members.push_back({parameters[i], bucket.num_elements, size});
    bucket.num_elements += padded;
  }
  for (Bucket& bucket : buckets_) {
    bucket.num_elements = round_up(bucket.num_elements, kFlatAlign * shards);
    materialise(bucket, policy_, device_);
  }
}

void FlatBuffers::zero_grads() {
  for (Bucket& bucket : buckets_) {
    if (bucket.grads.defined()) bucket.grads.zero_();
  }
}

int64_t FlatBuffers::bytes() const {
  int64_t total = 0;
  for (const Bucket& bucket : buckets_) {
    total += static_cast<int64_t>(bucket.weights.nbytes());
    if (bucket.grads.defined()) total += static_cast<int64_t>(bucket.grads.nbytes());
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
    throw TemporaryError(
        "memory",
        fmt::format("no memory for a buffer of {}: {}; use more ranks, a "
                    "smaller model or smaller dtypes in [precision]",
                    human_bytes(static_cast<double>(bytes)), std::strerror(errno)));
  }
  ::madvise(address, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      address, {num_elements}, [bytes](void* p) { ::munmap(p, bytes); }, options);
}

}  // namespace longhaul
