#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "longhaul/format/tensor_slice.h"

namespace longhaul {

/// Every tensor starts at a multiple of this many elements and is padded to it with
/// zeros; shards are cut there too, so that a cut never splits a block of a norm's
/// partial sum and equal shards exist for every number of ranks.
inline constexpr int64_t kFlatAlign = 1024;
/// Bounds a bucket; larger tensors that belong together have one of their own.
inline constexpr int64_t kMaxBucketElements = int64_t{1} << 26;

/// [begin, end) of a bucket's elements.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  /// The index-th of equal parts.
  FlatRange part(int index, int parts) const;
  bool operator==(const FlatRange&) const = default;
};

/// How buckets are cut among the ranks that hold the same parameters (ZeRO, Rajbhandari
/// et al.). Shards are cut inside a shard group; shard groups are replicas of each other.
struct FlatSharding {
  int shard = 0;         ///< this rank's place in its shard group
  int shards = 1;        ///< ranks of a shard group; 1: this rank updates everything
  int replica = 0;       ///< this shard group's place among them
  int replicas = 1;      ///< shard groups
  bool grads = false;    ///< full gradients exist only while a unit's backward runs
  bool weights = false;  ///< full weights exist only while a unit is in use
  /// The same of experts' buckets, where not every rank has all experts.
  struct Experts {
    int shard = 0;
    int shards = 1;
    int replica = 0;
    int replicas = 1;
  };
  std::optional<Experts> experts = {};
};

/// The unit of parameters of one dim (norms, biases): every rank keeps all of them.
inline constexpr int kResidentUnit = -1;

/// Over which further ranks the gradients of a bucket are added.
enum SumGroup : int {
  kNoSum = 0,
  kTensorSum = 1,  ///< tp: vectors that saw a part of the tokens each
  kKeySum = 2,     ///< the ranks that hold the same key heads
  kTiedSum = 3,    ///< the first and the last stage: a tied embedding
};
inline constexpr int kSumGroups = 3;

/// What a layout says about a parameter of one rank.
struct PlacedParameter {
  TensorSlice slice;  ///< that this rank holds
  /// Parameters of one unit are used together, and gathered and released as one.
  int unit = 0;
  int sum_group = kNoSum;
  /// False where another rank of the model's group holds the same values and is the one
  /// that counts them in norms and saves them.
  bool counted = true;
  bool frozen = false;
  bool expert = false;  ///< of an expert, which other ranks share than the rest
  /// A matrix that goes into the bucket of the matrix before it, where they may be mixed,
  /// whatever its size (ParameterDescription::joint).
  bool joint = false;
};

struct BucketMember {
  size_t parameter = 0;      ///< its number among those that were placed
  int64_t begin = 0;         ///< first element in the bucket
  int64_t num_elements = 0;  ///< without padding
};

/// Parameters side by side in one buffer: of one unit and one sum group, all counted or
/// none, all frozen or none, all of experts or none.
struct BucketShape {
  int unit = 0;
  int sum_group = kNoSum;
  bool counted = true;
  bool frozen = false;
  bool expert = false;
  int64_t num_elements = 0;  ///< padding included
  FlatRange owned;           ///< what this rank updates
  FlatRange saved;           ///< what it alone counts and saves; empty if not counted
  bool weights_stay = true;
  bool grads_stay = true;
};

struct BucketPlan : BucketShape {
  std::vector<BucketMember> members;
};

/// Buckets are filled in backward order (the last unit first), so that a full bucket's
/// gradients are ready while earlier layers still compute. `parameters` in forward order.
std::vector<BucketPlan> plan_buckets(std::span<const PlacedParameter> parameters,
                                     const FlatSharding& sharding,
                                     int64_t max_bucket_elements = kMaxBucketElements);

}  // namespace longhaul
