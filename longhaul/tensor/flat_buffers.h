#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "longhaul/layout/buckets.h"
#include "longhaul/tensor/parameter.h"
#include "longhaul/tensor/parameter_class.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::tensor {

/// A parameter and its place in a layout: see PlacedParameter.
struct FlatParameter {
  ParameterPtr parameter;
  ParameterClass kind;
  int unit = 0;
  int sum_group = layout::kNoSum;
  bool counted = true;
  bool expert = false;
  bool joint = false;
};

/// A parameter's place in its bucket.
struct FlatMember {
  ParameterPtr parameter;
  ParameterClass kind;
  int64_t begin = 0;         ///< first element in the bucket
  int64_t num_elements = 0;  ///< without padding
};

/// Parameters side by side in one weights buffer (compute dtype) and one gradient buffer
/// (gradient dtype). All parameters of a bucket have one unit and one sum group, and all
/// are frozen or none is.
struct Bucket : layout::BucketShape {
  std::vector<FlatMember> members;
  at::Tensor weights;  ///< all elements; undefined while released
  at::Tensor grads;    ///< all elements; undefined while released, or frozen
  /// The owned elements: a view of weights if weights stay, unless owned_apart.
  at::Tensor owned_weights;
  /// A view of grads, or the sum over micro batches.
  at::Tensor owned_grads;

  /// Returns the member's elements that lie in the bucket's `range`; may be empty.
  static layout::FlatRange overlap(const FlatMember& member, layout::FlatRange range);

  /// Writes zeros to the parts of `grads` to which nothing was added. Must be called
  /// before `grads` is read in any way but through the parameters.
  void settle_grads() const;
};

/// Owns the storage of all parameters, in the buckets of plan_buckets. Not thread-safe.
class FlatBuffers {
 public:
  /// Allocates the buckets of `parameters`, which are in forward order. A bucket has at
  /// most `max_bucket_elements`. A larger tensor has a bucket of its own, and so have
  /// larger matrices that are multiplied as one (FlatParameter::joint). Weights and
  /// gradients start as zeros.
  FlatBuffers(const std::vector<FlatParameter>& parameters, const DTypePolicy& policy,
              at::Device device, const layout::FlatSharding& sharding = {},
              int64_t max_bucket_elements = layout::kMaxBucketElements);

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const DTypePolicy& policy() const { return policy_; }
  const layout::FlatSharding& sharding() const { return sharding_; }
  at::Device device() const { return device_; }

  /// Gives the bucket memory, of any content, for all its weights, and binds the
  /// parameters to the memory. Does nothing to weights that stay, which means that they
  /// always have memory. The three functions below also do nothing to weights or
  /// gradients that stay.
  void hold_weights(Bucket& bucket);
  /// Takes the memory of the weights away again.
  void release_weights(Bucket& bucket);
  /// Gives the bucket memory for all its gradients, which are then zeros or, on a CPU,
  /// unset (Parameter::unset_grad), and binds the parameters to the memory.
  void hold_grads(Bucket& bucket);
  /// Takes the memory of the gradients away again.
  void release_grads(Bucket& bucket);

  /// Returns an uninitialized buffer, which give_scratch() takes back to be used again.
  /// The page faults of new memory would cost more time than the copies to and from the
  /// buffers.
  at::Tensor take_scratch(int64_t num_elements, at::ScalarType type);
  void give_scratch(at::Tensor tensor);

  /// Sets all gradients that this rank keeps between micro batches to zero. On a CPU the
  /// gradients of parameters are unset instead (Parameter::unset_grad), until
  /// settle_grads.
  void zero_grads();
  /// Returns the bytes of weights and gradients that stay, and of scratch buffers.
  int64_t bytes() const;

 private:
  void allocate(Bucket& bucket);
  void clear_grads(Bucket& bucket) const;
  static void bind(Bucket& bucket);

  DTypePolicy policy_;
  at::Device device_;
  layout::FlatSharding sharding_;
  std::vector<Bucket> buckets_;
  std::map<std::pair<at::ScalarType, int64_t>, std::vector<at::Tensor>> scratch_;
  int64_t scratch_bytes_ = 0;
};

/// Returns a zeroed one-dimensional tensor. On a CPU the tensor has a mapping of its own,
/// for which huge pages are requested: large, long-lived buffers do not use malloc.
at::Tensor allocate_flat(int64_t num_elements, at::ScalarType type, at::Device device);

}  // namespace longhaul::tensor
