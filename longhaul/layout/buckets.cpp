#include "longhaul/layout/buckets.h"

#include <algorithm>
#include <tuple>

namespace longhaul::layout {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Returns the properties that all parameters of a bucket share.
auto key_of(const PlacedParameter& p) {
  return std::tuple(p.slice.extent.size() <= 1 ? kResidentUnit : p.unit, p.sum_group,
                    p.counted, p.frozen, p.expert);
}

auto key_of(const BucketPlan& bucket) {
  return std::tuple(bucket.unit, bucket.sum_group, bucket.counted, bucket.frozen,
                    bucket.expert);
}

/// Returns the matrix before parameter `i`, if both have to be in one bucket.
std::optional<size_t> joint_with(std::span<const PlacedParameter> parameters, size_t i) {
  if (!parameters[i].joint) return {};
  for (size_t j = i; j-- > 0;) {
    if (parameters[j].slice.extent.size() <= 1) continue;
    if (key_of(parameters[j]) == key_of(parameters[i])) return j;
    break;
  }
  return {};
}

/// Returns the number of padded elements of a parameter and of the parameters before it
/// that have to be in its bucket.
int64_t joint_elements(std::span<const PlacedParameter> parameters, size_t last) {
  int64_t size = 0;
  for (std::optional<size_t> i = last; i; i = joint_with(parameters, *i)) {
    size += round_up(parameters[*i].slice.num_elements(), kFlatAlign);
  }
  return size;
}

void cut(BucketPlan& bucket, const FlatSharding& sharding) {
  FlatSharding s = sharding;
  if (bucket.expert && s.experts) {
    s.shard = s.experts->shard;
    s.shards = s.experts->shards;
    s.replica = s.experts->replica;
    s.replicas = s.experts->replicas;
  }
  bucket.num_elements = round_up(bucket.num_elements, kFlatAlign * s.shards * s.replicas);
  bucket.owned = FlatRange{0, bucket.num_elements}.part(s.shard, s.shards);
  if (bucket.counted) bucket.saved = bucket.owned.part(s.replica, s.replicas);
  // A bucket with one shard, as that of experts may be, stays whole on its rank.
  const bool stays = bucket.unit == kResidentUnit || s.shards == 1;
  bucket.weights_stay = !s.weights || stays;
  bucket.grads_stay = !s.grads || stays;
  bucket.owned_apart = s.apart && s.shards > 1;
}

}  // namespace

FlatRange FlatRange::part(int index, int parts) const {
  const int64_t length = size() / parts;
  return {begin + index * length, begin + (index + 1) * length};
}

std::vector<BucketPlan> plan_buckets(std::span<const PlacedParameter> parameters,
                                     const FlatSharding& sharding,
                                     int64_t max_bucket_elements) {
  std::vector<BucketPlan> buckets;
  std::optional<size_t> joint;  // the matrix that must share the last matrix's bucket
  for (size_t i = parameters.size(); i-- > 0;) {
    const PlacedParameter& p = parameters[i];
    const int64_t size = p.slice.num_elements();
    const int64_t padded = round_up(size, kFlatAlign);
    // The parameter goes into the newest bucket with the same properties, if it has room.
    const auto place = std::find_if(buckets.rbegin(), buckets.rend(), [&](const auto& b) {
      return key_of(b) == key_of(p);
    });
    BucketPlan* bucket = place == buckets.rend() ? nullptr : &*place;
    // A matrix that has to be in the last matrix's bucket was counted with it.
    if (sharding.apart ||
        (joint != i &&
         (bucket == nullptr ||
          bucket->num_elements + joint_elements(parameters, i) > max_bucket_elements))) {
      bucket = &buckets.emplace_back();
      std::tie(bucket->unit, bucket->sum_group, bucket->counted, bucket->frozen,
               bucket->expert) = key_of(p);
    }
    bucket->members.push_back({i, bucket->num_elements, size});
    bucket->num_elements += padded;
    if (p.slice.extent.size() > 1) joint = joint_with(parameters, i);
  }
  for (BucketPlan& bucket : buckets) cut(bucket, sharding);
  return buckets;
}

}  // namespace longhaul::layout
