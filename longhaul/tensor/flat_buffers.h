#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "longhaul/tensor/dtype.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul {

/// Every tensor starts at a multiple of this many elements and is padded to it with
/// zeros; shards are cut there too, so that a cut never splits a block of a norm's
/// partial sum and equal shards exist for every number of ranks.
inline constexpr int64_t kFlatAlign = 1024;

/// A parameter's place in its bucket.
struct FlatMember {
  ParameterPtr parameter;
  int64_t begin = 0;         ///< first element in the bucket
  int64_t num_elements = 0;  ///< without padding
};

/// [begin, end) of a bucket's elements.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// What the optimizer does with a parameter; one bucket holds one class.
struct ParameterClass {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  bool frozen = false;
  bool operator==(const ParameterClass&) const = default;
};

/// Parameters of one class side by side in one weights buffer (compute dtype) and one
/// gradient buffer (gradient dtype; undefined when frozen).
struct Bucket {
  ParameterClass kind;
  std::vector<FlatMember> members;
  int64_t num_elements = 0;  ///< padding included; a multiple of kFlatAlign * shards
  at::Tensor weights;
  at::Tensor grads;

  /// Equal, contiguous shares of the bucket.
  FlatRange shard(int index, int shards) const;
  /// The part of the member's own elements that lies in `range`; empty if none does.
  static FlatRange overlap(const FlatMember& member, FlatRange range);
};

/// Owns the storage of all parameters. Buckets are filled in backward order (the last
/// layer first), so that a full bucket's gradients are ready while earlier layers still
/// compute. Not thread-safe.
class FlatBuffers {
 public:
  /// `parameters` in forward order with their classes; `max_bucket_elements` bounds a
  /// bucket (a larger tensor has one of its own). Weights and gradients start as zeros.
  FlatBuffers(const std::vector<ParameterPtr>& parameters,
              const std::vector<ParameterClass>& classes, const DTypePolicy& policy,
              at::Device device, int shards,
              int64_t max_bucket_elements = int64_t{1} << 26);

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const DTypePolicy& policy() const { return policy_; }
  at::Device device() const { return device_; }

  void zero_grads();
  /// Bytes of weights and gradients.
  int64_t bytes() const;

 private:
  DTypePolicy policy_;
  at::Device device_;
  std::vector<Bucket> buckets_;
};

/// A zeroed one-dimensional tensor. On a CPU it lies on its own mapping with huge pages
/// asked for: large, long-lived buffers do not go through malloc.
at::Tensor allocate_flat(int64_t num_elements, at::ScalarType type, at::Device device);

}  // namespace longhaul
