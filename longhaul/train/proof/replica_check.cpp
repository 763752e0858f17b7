#include "longhaul/train/proof/replica_check.h"

#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::train {
namespace {

/// Bytes that one thread hashes at a time; fixed, so that all ranks get the same number.
constexpr int64_t kBlockBytes = int64_t{4} << 20;

int64_t checksum_on_host(const at::Tensor& values) {
  const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
  const auto size = static_cast<int64_t>(values.nbytes());
  const int64_t count = (size + kBlockBytes - 1) / kBlockBytes;
  std::vector<uint64_t> blocks(static_cast<size_t>(count));
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * kBlockBytes;
      const auto length = static_cast<size_t>(std::min(kBlockBytes, size - at));
      blocks[static_cast<size_t>(b)] = hash_number({bytes + at, length});
    }
  });
  return static_cast<int64_t>(hash_number(std::as_bytes(std::span(blocks))));
}

/// Returns a checksum of the tensor's bits. On another device than a CPU it is the sum of
/// the elements' bits as integers, which one changed bit changes.
int64_t checksum(const at::Tensor& values) {
  if (values.is_cpu()) return checksum_on_host(values);
  const auto bits = values.element_size() == 2 ? at::kShort : at::kInt;
  return at::sum(values.view(bits), at::kLong).item<int64_t>();
}

}  // namespace

std::vector<int> outvoted(const std::vector<int64_t>& keys,
                          const std::vector<int64_t>& sums) {
  std::map<int64_t, std::map<int64_t, size_t>>
      votes;  // by key: how many ranks have each sum
  std::map<int64_t, size_t> voters;
  for (size_t i = 0; i < keys.size(); ++i) {
    ++votes[keys[i]][sums[i]];
    ++voters[keys[i]];
  }
  std::vector<int> losers;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (votes[keys[i]].size() == 1) continue;
    const bool wins = 2 * votes[keys[i]][sums[i]] > voters[keys[i]];
    if (!wins) losers.push_back(static_cast<int>(i));
  }
  return losers;
}

/// A contiguous range of one buffer.
struct ReplicaCheck::Part {
  const tensor::Bucket* bucket;
  std::string what;  ///< "weight", "master", "exp_avg" or "exp_avg_sq"
  at::Tensor values;
  layout::FlatRange range;  ///< range in the bucket
  bool owned;               ///< whether only ranks of the same shard hold it alike
};

struct ReplicaCheck::Finding {
  std::set<int64_t> ranks;  ///< ranks of the world
  std::string tensor;       ///< empty on ranks of another shard
};

ReplicaCheck::ReplicaCheck(const Session& session, int64_t every,
                           std::function<void(const Json& fields)> tell)
    : session_(session),
      every_(session.mesh().data().size() > 1 ? every : 0),
      tell_(std::move(tell)) {
  // Where no group has two ranks nobody gathers; all groups have the same size.
  if (every_ == 0) return;
  for (const auto& row :
       gather({session.world->rank(), session.flat->sharding().shard})) {
    world_ranks_.push_back(row[0]);
    shards_.push_back(row[1]);
  }
}

std::vector<std::vector<int64_t>> ReplicaCheck::gather(const std::vector<int64_t>& mine) {
  const std::vector<int64_t> all = gather_numbers(session_.mesh().data(), mine);
  std::vector<std::vector<int64_t>> rows;
  for (auto row = all.begin(); row != all.end(); row += std::ssize(mine)) {
    rows.emplace_back(row, row + std::ssize(mine));
  }
  return rows;
}

std::vector<ReplicaCheck::Part> ReplicaCheck::parts() const {
  const std::vector<tensor::Bucket>& buckets = session_.flat->buckets();
  const bool replicas = session_.flat->sharding().replicas > 1;
  std::vector<Part> parts;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const tensor::Bucket& bucket = buckets[i];
    if (bucket.weights_stay) {
      parts.push_back(
          {&bucket, "weight", bucket.weights, {0, bucket.num_elements}, false});
    }
    if (!replicas) continue;
    const optim::BucketState& own = session_.optimizer->states()[i];
    const auto add = [&](const char* what, const at::Tensor& values) {
      if (values.defined()) parts.push_back({&bucket, what, values, bucket.owned, true});
    };
    if (!bucket.weights_stay) add("weight", bucket.owned_weights);
    if (!own.master.is_alias_of(bucket.owned_weights)) add("master", own.master);
    add("exp_avg", own.exp_avg);
    add("exp_avg_sq", own.exp_avg_sq);
  }
  return parts;
}

std::vector<int> ReplicaCheck::outvoted_in(const std::vector<std::vector<int64_t>>& rows,
                                           size_t column, bool owned) const {
  std::vector<int64_t> sums;
  for (const auto& row : rows) sums.push_back(row[column]);
  return outvoted(owned ? shards_ : std::vector<int64_t>(sums.size(), 0), sums);
}

/// Compares one number for all values that are alike on all ranks, and one for all values
/// of a shard.
bool ReplicaCheck::differs(const std::vector<Part>& parts) {
  std::vector<int64_t> common;
  std::vector<int64_t> owned;
  for (const Part& part : parts) {
    (part.owned ? owned : common).push_back(checksum(part.values));
  }
  const auto total = [](const std::vector<int64_t>& sums) {
    return static_cast<int64_t>(hash_number(std::as_bytes(std::span(sums))));
  };
  const auto rows = gather({total(common), total(owned)});
  return !outvoted_in(rows, 0, false).empty() || !outvoted_in(rows, 1, true).empty();
}

/// Finds the ranks that differ, and the first tensor of the first part that differs.
/// Finds nothing where the ranks agree at this second look.
ReplicaCheck::Finding ReplicaCheck::find(const std::vector<Part>& parts) {
  Finding finding;
  std::vector<int64_t> sums;
  for (const Part& part : parts) sums.push_back(checksum(part.values));
  const auto rows = gather(sums);
  const Part* first = nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int> losers = outvoted_in(rows, i, parts[i].owned);
    for (const int rank : losers) {
      finding.ranks.insert(world_ranks_[static_cast<size_t>(rank)]);
    }
    if (!losers.empty() && first == nullptr) first = &parts[i];
  }
  if (first == nullptr) return finding;
  const auto pieces = tensor::pieces_in(*first->bucket, first->range);
  sums.clear();
  for (const tensor::FlatPiece& piece : pieces) {
    sums.push_back(checksum(first->values.narrow(0, piece.in_bucket - first->range.begin,
                                                 piece.in_member.size())));
  }
  // Shards begin in different tensors, so each rank has its own number of pieces.
  int64_t most = static_cast<int64_t>(sums.size());
  session_.mesh().data().all_reduce_wait({&most, 1, format::DType::I64},
                                         comm::ReduceOp::Max);
  sums.resize(static_cast<size_t>(most));
  const auto of_pieces = gather(sums);
  const int64_t my_shard = session_.flat->sharding().shard;
  const auto is_mine = [&](int rank) {
    return !first->owned || shards_[static_cast<size_t>(rank)] == my_shard;
  };
  for (size_t i = 0; i < pieces.size() && finding.tensor.empty(); ++i) {
    if (!std::ranges::any_of(outvoted_in(of_pieces, i, first->owned), is_mine)) continue;
    finding.tensor =
        fmt::format("{} of {}", first->what, pieces[i].member->parameter->name());
  }
  return finding;
}

void ReplicaCheck::run(int64_t step, bool must) {
  if (every_ == 0 || step == checked_step_) return;
  if (!must && step % every_ != 0) return;
  checked_step_ = step;
  session_.world->ledger().set("replicas", step);
  session_.replicas->finish_weights();
  const std::vector<Part> all = parts();
  const bool here = differs(all);
  if (!session_.world->any(here)) return;
  Json mine;
  if (here) {
    const Finding finding = find(all);
    mine = {{"ranks", finding.ranks}, {"tensor", finding.tensor}};
  }
  std::set<int64_t> ranks;
  std::string tensor;
  for (const std::string& text : session_.world->gather_strings(json_text(mine))) {
    const Json other = Json::parse(text);
    if (other.is_null()) continue;
    for (const Json& rank : other["ranks"]) ranks.insert(rank.get<int64_t>());
    if (tensor.empty()) tensor = other["tensor"];
  }
  if (tensor.empty()) tensor = "what lies between tensors, or is well again";
  tell_({{"step", step}, {"ranks", ranks}, {"tensor", tensor}});
  const bool two = session_.mesh().data().size() == 2;
  throw TemporaryError(
      "corruption",
      fmt::format("step {}: ranks that hold the same do not hold the same bits: rank {} "
                  "in {}; {}look at their memory and processors. Nothing is saved of "
                  "this: the last checkpoint is from before",
                  step, fmt::join(ranks, ", "), tensor,
                  two ? "of two nobody can say which is right; " : ""));
}

}  // namespace longhaul::train
