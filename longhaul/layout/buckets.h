#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "longhaul/format/tensor_slice.h"

namespace longhaul::layout {

/// Every tensor in a bucket begins at a multiple of this many elements and is padded with
/// zeros to the next multiple. Shards are cut at multiples too, so that a norm's partial
/// sums (one per block of elements) are never cut, and equal shards exist for every
/// number of ranks.
inline constexpr int64_t kFlatAlign = 1024;
/// The most elements of a bucket. Tensors that have to be in one bucket and have more
/// elements together get a bucket of their own.
inline constexpr int64_t kMaxBucketElements = int64_t{1} << 26;

/// The elements [begin, end) of a bucket.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  /// Returns part `index` of `parts` equal parts.
  FlatRange part(int index, int parts) const;
  bool operator==(const FlatRange&) const = default;
};

/// How buckets are cut among the ranks that hold the same parameters (Rajbhandari et al.,
/// "ZeRO"). The ranks of a shard group have one shard each; shard groups are replicas of
/// each other.
struct FlatSharding {
  int shard = 0;         ///< this rank's place in its shard group
  int shards = 1;        ///< ranks of a shard group; 1: this rank updates everything
  int replica = 0;       ///< this shard group's place among the shard groups
  int replicas = 1;      ///< shard groups
  bool grads = false;    ///< full gradients exist only while a unit's backward runs
  bool weights = false;  ///< full weights exist only while a unit is in use
  /// Shards and replicas of experts' buckets, if not every rank has all experts.
  struct Experts {
    int shard = 0;
    int shards = 1;
    int replica = 0;
    int replicas = 1;
  };
  std::optional<Experts> experts = {};
  /// Each parameter has a bucket of its own, and what a rank owns of a bucket lies in
  /// tensors of its own: for devices that cannot write to a part of a tensor.
  bool apart = false;
};

/// The unit number of parameters with one dimension (norms, biases). Every rank keeps all
/// these parameters.
inline constexpr int kResidentUnit = -1;

/// The ranks, besides the data parallel ranks, that hold the same parameters, and how
/// their gradients become one gradient. Copies that are updated with the same bits keep
/// the same bits.
enum SumGroup : int {
  kNoSum = 0,      ///< no other rank holds them
  kTensorSum = 1,  ///< tp: each rank has a part of the vectors' gradients
  kKeySum = 2,     ///< the ranks that hold the same key heads
  kTiedSum = 3,    ///< the first and the last stage, which hold a tied embedding
  /// tp: each rank has formed the whole gradient, and all take that of the first rank,
  /// since processors of different kinds may differ in its last bits.
  kTensorFirst = 4,
};
inline constexpr int kSumGroups = 4;

/// A parameter of one rank, as the layout places it in a unit and in groups.
struct PlacedParameter {
  format::TensorSlice slice;  ///< the part that this rank holds
  /// Parameters of one unit are used, gathered and released together.
  int unit = 0;
  int sum_group = kNoSum;
  /// False if another rank holds a copy of the values in the same model replica, and that
  /// copy is the one that norms count and checkpoints save.
  bool counted = true;
  bool frozen = false;
  bool expert = false;  ///< belongs to an expert: other ranks hold the same values
  /// True for a matrix that goes into the bucket of the matrix before it, whatever its
  /// size, if the two may be in one bucket (ParameterDescription::joint).
  bool joint = false;
};

struct BucketMember {
  size_t parameter = 0;      ///< number of the parameter among those that were placed
  int64_t begin = 0;         ///< first element in the bucket
  int64_t num_elements = 0;  ///< without padding
};

/// Parameters side by side in one buffer. They have one unit and one SumGroup, and agree
/// in `frozen`, in `expert` and in whether norms count and checkpoints save them here
/// (`counted`).
struct BucketShape {
  int unit = 0;
  int sum_group = kNoSum;
  bool counted = true;
  bool frozen = false;
  bool expert = false;
  int64_t num_elements = 0;  ///< padding included
  FlatRange owned;           ///< elements that this rank updates
  FlatRange saved;           ///< elements that this rank alone counts and saves
  bool weights_stay = true;
  bool grads_stay = true;
  /// The owned elements lie beside the whole weights and gradients, not in them.
  bool owned_apart = false;
};

struct BucketPlan : BucketShape {
  std::vector<BucketMember> members;
};

/// Plans the buckets of `parameters`, which are in forward order. Buckets are filled in
/// backward order (the last unit first), so that the gradients of a full bucket are ready
/// while earlier layers still compute.
std::vector<BucketPlan> plan_buckets(std::span<const PlacedParameter> parameters,
                                     const FlatSharding& sharding,
                                     int64_t max_bucket_elements = kMaxBucketElements);

}  // namespace longhaul::layout
