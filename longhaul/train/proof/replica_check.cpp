#include "longhaul/train/proof/replica_check.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/tensor/device_limits.h"
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

/// Returns a checksum of the tensor's bits, [1], on the tensor's device. On another
/// device than a CPU it is the sum of the elements' bits as integers, which one changed
/// bit changes. A device without 64-bit numbers leaves the checksum to the host.
at::Tensor checksum(const at::Tensor& values) {
  if (values.is_cpu() || !tensor::limits_of(values.device()).wide_types) {
    return at::full({1}, checksum_on_host(values.cpu().contiguous()), at::kLong);
  }
  const auto bits = values.element_size() == 2 ? at::kShort : at::kInt;
  return at::sum(values.view(bits), at::kLong).reshape({1});
}

/// Returns checksums as numbers. Waits for the device once, and watches the groups of the
/// layout meanwhile.
std::vector<int64_t> read_sums(const session::Layout& layout,
                               const std::vector<at::Tensor>& sums) {
  if (sums.empty()) return {};
  const at::Tensor host = layout.to_host(at::cat(sums));
  const auto* from = host.const_data_ptr<int64_t>();
  return {from, from + host.numel()};
}

/// Returns each rank's numbers, in rank order, with zeros after those of a rank that has
/// fewer than others. Collective.
std::vector<std::vector<int64_t>> gather_rows(comm::Communicator& group,
                                              std::vector<int64_t> mine) {
  int64_t most = std::ssize(mine);
  group.all_reduce_wait({&most, 1, format::DType::I64}, comm::ReduceOp::Max);
  mine.resize(static_cast<size_t>(most));
  const std::vector<int64_t> all = session::gather_numbers(group, mine);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t at = 0; most > 0 && at < std::ssize(all); at += most) {
    rows.emplace_back(all.begin() + at, all.begin() + at + most);
  }
  return rows;
}

/// Returns the ranks that are outvoted in one column of `rows`, which has a row of sums
/// for each rank.
std::vector<int> outvoted_in(const std::vector<int64_t>& keys,
                             const std::vector<std::vector<int64_t>>& rows,
                             size_t column) {
  std::vector<int64_t> sums;
  for (const auto& row : rows) sums.push_back(row[column]);
  return outvoted(keys, sums);
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
  const char* what;  ///< "weight", "master", "exp_avg" or "exp_avg_sq"
  at::Tensor values;
  layout::FlatRange range;  ///< range in the bucket
  std::vector<Kind> kinds;  ///< kinds in which ranks hold it alike; at most two
  int64_t sum;              ///< checksum

  bool is(Kind kind) const { return std::ranges::count(kinds, kind) > 0; }
};

/// What a rank finds about itself.
struct ReplicaCheck::Verdict {
  bool lost = false;      ///< this rank is outvoted in some comparison
  bool guilty = false;    ///< this rank is outvoted in all kinds of some part
  bool outvoted = false;  ///< a majority has something else
  std::string tensor;     ///< the first tensor that differs
};

ReplicaCheck::ReplicaCheck(const TrainingSession& session, int64_t every,
                           std::function<void(const Json& fields)> tell)
    : session_(session), every_(every), tell_(std::move(tell)), holders_(kKinds) {
  using layout::GroupKind;
  const comm::Mesh& mesh = session.mesh();
  const layout::Groups groups = session.layout().description().rank_groups();
  const auto all_alike = [](int /*rank*/) { return 0; };
  add_holders(kWeights, mesh.data(), GroupKind::Data, all_alike);
  if (session.flat().sharding().replicas > 1) {
    add_holders(kShards, mesh.data(), GroupKind::Data,
                [&](int rank) { return groups.place(GroupKind::Shard, rank).index; });
  }
  if (session.layout().description().ep > 1) {
    const auto experts = [&](int rank) {
      return groups.place(GroupKind::Ep, rank).index;
    };
    add_holders(kExpertWeights, mesh.data(), GroupKind::Data, experts);
    add_holders(kExpertShards, mesh.data(), GroupKind::Data, [&](int rank) {
      const layout::GroupPlace shard = groups.place(GroupKind::ExpertShard, rank);
      return int64_t{experts(rank)} * shard.size + shard.index;
    });
  }
  add_holders(kTensor, mesh.tp(), GroupKind::Tp, all_alike);
  if (session.layout().description().shared_key_heads > 0) {
    add_holders(kKeys, mesh.tp(), GroupKind::Tp, [&](int rank) {
      return groups.place(GroupKind::KeyReplicas, rank).color;
    });
  }
  if (session.layout().description().tied) {
    add_holders(kTied, mesh.pp(), GroupKind::Pp,
                [&](int rank) { return groups.place(GroupKind::Tied, rank).color; });
  }
  const auto used = [](const Holders& h) { return h.group != nullptr; };
  if (std::ranges::none_of(holders_, used)) every_ = 0;
}

/// Notes that `kind` is compared among the ranks of `group`, which lie along `axis`.
/// Every rank of the world adds the same kinds.
void ReplicaCheck::add_holders(Kind kind, comm::Communicator& group,
                               layout::GroupKind axis,
                               const std::function<int64_t(int rank)>& key_of) {
  if (group.size() == 1) return;
  holders_[kind].group = &group;
  for (const int rank : session_.layout().description().rank_groups().members(
           axis, session_.world().rank())) {
    holders_[kind].keys.push_back(key_of(rank));
  }
  holders_[kind].alike =
      std::ranges::count(holders_[kind].keys, key_of(session_.world().rank()));
}

std::vector<ReplicaCheck::Part> ReplicaCheck::parts() const {
  const std::vector<tensor::Bucket>& buckets = session_.flat().buckets();
  std::vector<Part> parts;
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const tensor::Bucket& bucket = buckets[i];
    const bool spread = bucket.expert && session_.layout().description().ep > 1;
    const Kind weights = spread ? kExpertWeights : kWeights;
    const Kind shards = spread ? kExpertShards : kShards;
    const auto add = [&](const char* what, const at::Tensor& values,
                         layout::FlatRange range, Kind of_data) {
      Part part{&bucket, what, values, range, {}, 0};
      const auto held = [&](Kind kind) {
        if (holders_[kind].alike > 1) part.kinds.push_back(kind);
      };
      held(of_data);
      if (bucket.sum_group == layout::kTensorSum ||
          bucket.sum_group == layout::kTensorFirst) {
        held(kTensor);
      }
      if (bucket.sum_group == layout::kKeySum) held(kKeys);
      if (bucket.sum_group == layout::kTiedSum) held(kTied);
      if (part.kinds.empty() || !values.defined()) return;
      sums.push_back(checksum(values));
      parts.push_back(std::move(part));
    };
    const optim::BucketState& own = session_.optimizer().states()[i];
    if (bucket.weights_stay) {
      add("weight", bucket.weights, {0, bucket.num_elements}, weights);
    } else {
      add("weight", bucket.owned_weights, bucket.owned, shards);
    }
    if (own.master.defined() && !own.master.is_alias_of(bucket.owned_weights)) {
      add("master", own.master, bucket.owned, shards);
    }
    add("exp_avg", own.exp_avg, bucket.owned, shards);
    add("exp_avg_sq", own.exp_avg_sq, bucket.owned, shards);
  }
  const std::vector<int64_t> read = read_sums(session_.layout(), sums);
  for (size_t i = 0; i < parts.size(); ++i) parts[i].sum = read[i];
  return parts;
}

/// Returns whether the ranks' checksums over all parts of a kind differ. Collective over
/// the kind's group.
bool ReplicaCheck::differs(Kind kind, const std::vector<Part>& parts) const {
  const Holders& holders = holders_[kind];
  if (holders.group == nullptr) return false;
  std::vector<int64_t> sums;
  for (const Part& part : parts) {
    if (part.is(kind)) sums.push_back(part.sum);
  }
  const uint64_t total = hash_number(std::as_bytes(std::span(sums)));
  const auto of_ranks =
      session::gather_numbers(*holders.group, {static_cast<int64_t>(total)});
  return !outvoted(holders.keys, of_ranks).empty();
}

/// Returns what this rank finds about itself in a second look at all parts of the kinds
/// that differ. A rank that disagrees with one copy of a part is not guilty where it
/// agrees with another copy. Collective over the groups of these kinds.
ReplicaCheck::Verdict ReplicaCheck::judge(const std::vector<bool>& kinds,
                                          const std::vector<Part>& parts) const {
  Verdict mine;
  std::vector<size_t> lost(parts.size());  ///< kinds in which this rank is outvoted
  for (size_t k = 0; k < kKinds; ++k) {
    if (!kinds[k]) continue;
    const auto kind = static_cast<Kind>(k);
    const Holders& holders = holders_[kind];
    const auto me = static_cast<size_t>(holders.group->rank());
    std::vector<size_t> looked;
    std::vector<int64_t> sums;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].is(kind)) continue;
      looked.push_back(i);
      sums.push_back(parts[i].sum);
    }
    const auto rows = gather_rows(*holders.group, std::move(sums));
    const int64_t my_key = holders.keys[me];
    const Part* first = nullptr;
    for (size_t column = 0; column < rows.at(0).size(); ++column) {
      const std::vector<int> losers = outvoted_in(holders.keys, rows, column);
      const auto losing = std::ranges::count_if(losers, [&](int rank) {
        return holders.keys[static_cast<size_t>(rank)] == my_key;
      });
      if (losing == 0) continue;
      if (first == nullptr) first = &parts[looked.at(column)];
      if (std::ranges::count(losers, static_cast<int>(me)) == 0) continue;
      ++lost[looked[column]];
      mine.lost = true;
      mine.outvoted = mine.outvoted || losing < holders.alike;
    }
    const std::string tensor = first_tensor(first, holders);
    if (mine.tensor.empty()) mine.tensor = tensor;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    mine.guilty = mine.guilty || (lost[i] > 0 && lost[i] == parts[i].kinds.size());
  }
  return mine;
}

/// Returns the name of the first tensor of a part that differs among the ranks with this
/// rank's key, which should hold the same. Returns "" for a null part, or where no tensor
/// differs. Collective over the group.
std::string ReplicaCheck::first_tensor(const Part* part, const Holders& holders) const {
  std::vector<tensor::FlatPiece> pieces;
  std::vector<at::Tensor> sums;
  if (part != nullptr) pieces = tensor::pieces_in(*part->bucket, part->range);
  for (const tensor::FlatPiece& piece : pieces) {
    sums.push_back(checksum(part->values.narrow(0, piece.in_bucket - part->range.begin,
                                                piece.in_member.size())));
  }
  // Shards begin in different tensors, so each rank has its own number of pieces.
  const auto rows = gather_rows(*holders.group, read_sums(session_.layout(), sums));
  const int64_t my_key = holders.keys[static_cast<size_t>(holders.group->rank())];
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<int> losers = outvoted_in(holders.keys, rows, i);
    if (std::ranges::none_of(losers, [&](int rank) {
          return holders.keys[static_cast<size_t>(rank)] == my_key;
        })) {
      continue;
    }
    return fmt::format("{} of {}", part->what, pieces[i].member->parameter->name());
  }
  return {};
}

void ReplicaCheck::run(int64_t step, bool must) {
  if (every_ == 0 || step == checked_step_) return;
  if (!must && step % every_ != 0) return;
  checked_step_ = step;
  session_.world().ledger().set("replicas", step);
  session_.replicas().finish_weights();
  std::vector<bool> kinds;
  {
    const std::vector<Part> all = parts();
    for (size_t k = 0; k < kKinds; ++k) {
      kinds.push_back(differs(static_cast<Kind>(k), all));
    }
  }
  if (!session_.world().any(std::ranges::count(kinds, true) > 0)) return;
  fail(step, judge(kinds, parts()));
}

/// Tells what all ranks have found about themselves, and throws. Collective.
void ReplicaCheck::fail(int64_t step, const Verdict& mine) {
  std::vector<Verdict> all;
  for (const std::string& text : session_.world().gather_strings(json_text(
           Json::array({mine.lost, mine.guilty, mine.outvoted, mine.tensor})))) {
    const Json of = Json::parse(text);
    all.push_back({of[0].get<bool>(), of[1].get<bool>(), of[2].get<bool>(),
                   of[3].get<std::string>()});
  }
  // Where no rank is guilty, whole groups of copies disagree, and all ranks that are
  // outvoted in some comparison are named.
  const bool some = std::ranges::any_of(all, &Verdict::guilty);
  std::vector<size_t> ranks;
  std::string tensor;
  bool sure = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!(some ? all[rank].guilty : all[rank].lost)) continue;
    ranks.push_back(rank);
    sure = sure && all[rank].outvoted;
    if (tensor.empty()) tensor = all[rank].tensor;
  }
  if (tensor.empty())
    tensor = "memory between tensors, or a tensor whose copies agree again";
  tell_({{"step", step}, {"ranks", ranks}, {"tensor", tensor}});
  const auto me = static_cast<size_t>(session_.world().rank());
  if (std::ranges::count(ranks, me) == 0) session_.world().ledger().failed_elsewhere();
  const char* doubt = ranks.size() == 2  ? "nobody can say which of the two is right; "
                      : ranks.size() > 2 ? "nobody can say which of them are right; "
                                         : "";
  fail_temporary("corruption",
                 "step {}: ranks that must hold the same values do not hold the same "
                 "bits: rank {} in {}; {}look at their memory and processors. This "
                 "state is not saved: the last checkpoint is from before the fault",
                 step, fmt::join(ranks, ", "), tensor, sure ? "" : doubt);
}

}  // namespace longhaul::train
