#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "longhaul/layout/buckets.h"
#include "longhaul/tensor/parameter.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul {

/// What the optimizer does with a parameter.
struct ParameterClass {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  bool frozen = false;
  bool operator==(const ParameterClass&) const = default;
};

/// A parameter and what a layout says about it: see PlacedParameter.
struct FlatParameter {
  ParameterPtr parameter;
  ParameterClass kind;
  int unit = 0;
  int sum_group = kNoSum;
  bool counted = true;
  bool expert = false;
  bool joint = false;
};

/// All in one unit and of one class: what one rank alone holds.
std::vector<FlatParameter> flat_parameters(const std::vector<ParameterPtr>& parameters,
                                           ParameterClass kind);

/// A parameter's place in its bucket.
struct FlatMember {
  ParameterPtr parameter;
  ParameterClass kind;
  int64_t begin = 0;         ///< first element in the bucket
  int64_t num_elements = 0;  ///< without padding
};

/// Parameters side by side in one weights buffer (compute dtype) and one gradient buffer
/// (gradient dtype). A bucket has one unit, one sum group, and is frozen or not.
struct Bucket : BucketShape {
  std::vector<FlatMember> members;
  at::Tensor weights;        ///< all elements; undefined while released
  at::Tensor grads;          ///< all elements; undefined while released, or frozen
  at::Tensor owned_weights;  ///< the owned elements: a view of weights where they stay
  at::Tensor owned_grads;    ///< a view of grads, or the sum over micro batches

  /// The part of the member's own elements that lies in `range`; empty if none does.
  static FlatRange overlap(const FlatMember& member, FlatRange range);

  /// Zeros in `grads` where nothing was added: before anybody reads them but through the
  /// parameters.
  void settle_grads() const;
};

/// Owns the storage of all parameters, in the buckets that plan_buckets makes of them.
/// Not thread-safe.
class FlatBuffers {
 public:
  /// `parameters` in forward order; `max_bucket_elements` bounds a bucket (a larger
  /// tensor, or joint ones, have one of their own). Weights and gradients start as zeros.
  FlatBuffers(const std::vector<FlatParameter>& parameters, const DTypePolicy& policy,
              at::Device device, const FlatSharding& sharding = {},
              int64_t max_bucket_elements = kMaxBucketElements);

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const DTypePolicy& policy() const { return policy_; }
  const FlatSharding& sharding() const { return sharding_; }
  at::Device device() const { return device_; }

  /// Gives the bucket memory for all its weights (of any content) or all its gradients
  /// (as after zero_grads), and takes it away again; no effect on what stays. Handles are
  /// bound to it.
  void hold_weights(Bucket& bucket);
  void release_weights(Bucket& bucket);
  void hold_grads(Bucket& bucket);
  void release_grads(Bucket& bucket);

  /// Memory that is used again instead of being given back: page faults cost more than
  /// the copies that such buffers serve. Of any content.
  at::Tensor take_scratch(int64_t num_elements, at::ScalarType type);
  void give_scratch(at::Tensor tensor);

  /// All gradients that this rank keeps between micro batches. On a CPU those of
  /// parameters are unset instead, until settle_grads.
  void zero_grads();
  /// Bytes of weights and gradients that stay, and of scratch.
  int64_t bytes() const;

 private:
  void allocate(Bucket& bucket);
  void clear_grads(Bucket& bucket) const;
  static void bind(Bucket& bucket);

  DTypePolicy policy_;
  at::Device device_;
  FlatSharding sharding_;
  std::vector<Bucket> buckets_;
  std::map<std::pair<at::ScalarType, int64_t>, std::vector<at::Tensor>> scratch_;
  int64_t scratch_bytes_ = 0;
};

/// A zeroed one-dimensional tensor. On a CPU it lies on its own mapping with huge pages
/// asked for: large, long-lived buffers do not go through malloc.
at::Tensor allocate_flat(int64_t num_elements, at::ScalarType type, at::Device device);

}  // namespace longhaul
