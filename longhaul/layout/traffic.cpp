#include "longhaul/layout/traffic.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace longhaul::layout {
namespace {

constexpr int64_t kRowCountBytes = 8;

/// Counts the messages of one rank in passes of units.
class PassTraffic {
 public:
  PassTraffic(const Passes& passes, const RunConfig& config,
              const LayoutDescription& layout, const MeshIndex& at)
      : passes_(passes),
        config_(config),
        layout_(layout),
        at_(at),
        rank_(rank_at(layout.shape, at)),
        groups_(layout.rank_groups()) {}

  void add_passes(const UnitDescription& unit, int64_t forwards) {
    tensor(unit, forwards);
    context(unit, forwards);
    experts(unit, forwards);
  }
  Traffic take() { return std::move(traffic_); }

 protected:
  /// Returns the kind of the group whose communicator carries the operations of groups of
  /// `kind`: groups with the same ranks share one communicator.
  GroupKind owner(GroupKind kind) const {
    if (layout_.ep == 1 && kind == GroupKind::ExpertShard) kind = GroupKind::Shard;
    if (layout_.ep == 1 && kind == GroupKind::ExpertReplicas) kind = GroupKind::Replicas;
    const bool cut = kind == GroupKind::Shard || kind == GroupKind::Replicas;
    const int data = layout_.shape.dp * layout_.shape.cp;
    if (!cut || groups_.place(kind, rank_).size != data) return kind;
    return layout_.shape.cp == 1 ? GroupKind::Dp : GroupKind::Data;
  }

  void all_reduce(TrafficKind kind, GroupKind group, int64_t calls, int64_t count,
                  int64_t element_bytes) {
    const GroupPlace place = groups_.place(group, rank_);
    if (place.size == 1) return;
    traffic_.add(kind, owner(group), Verb::AllReduce, calls,
                 sent_by_all_reduce(place.size, place.index, count, element_bytes));
  }
  /// Adds all-gathers or reduce-scatters. `part`: bytes of a rank's input or result.
  void cut(TrafficKind kind, GroupKind group, Verb verb, int64_t calls, int64_t part) {
    const int64_t ranks = groups_.place(group, rank_).size;
    if (ranks == 1) return;
    traffic_.add(kind, owner(group), verb, calls, sent_by_cut(ranks, part));
  }

 private:
  /// Returns how often a unit's forward runs for each of its actions: a block may be
  /// computed again.
  int64_t runs(const UnitDescription& unit) const {
    return passes_.form_of(unit).recompute == ForwardForm::Recompute::Full ? 2 : 1;
  }

  /// Adds the operations at the edges of regions with split features
  /// (parallel/tensor/region.h).
  void tensor(const UnitDescription& unit, int64_t forwards) {
    if (layout_.shape.tp == 1) return;
    const UnitForward& edges = unit.forward;
    const int64_t in = edges.enters * forwards;
    const int64_t out = edges.leaves * forwards;
    const int64_t part = passes_.hidden_bytes();
    const auto send = [&](Verb verb, int64_t calls) {
      cut(TrafficKind::Tensor, GroupKind::Tp, verb, calls, part);
    };
    if (layout_.tensor.sequence) {
      // In the backward the linear layers gather their input again, for weight gradients.
      const int64_t again = edges.taken * forwards;
      send(Verb::AllGather, runs(unit) * in + again + out);
      send(Verb::ReduceScatter, runs(unit) * out + in);
    } else {
      all_reduce(TrafficKind::Tensor, GroupKind::Tp, runs(unit) * out + in,
                 passes_.tokens.inside * passes_.features, passes_.form.compute_bytes);
    }
    if (edges.logits > 0) loss(edges, forwards);
  }

  /// Adds the exchange of the log-sum-exp and the target's logit of each row, in fp32.
  void loss(const UnitForward& head, int64_t forwards) {
    const int64_t all = passes_.tokens.rows(head.logits_of);
    const int64_t rows =
        logits_rows(all, head.logits / layout_.shape.tp + 1, passes_.logits_elements);
    for (int64_t from = 0; from < all; from += rows) {
      cut(TrafficKind::Tensor, GroupKind::Tp, Verb::AllGather, forwards,
          2 * 4 * std::min(rows, all - from));
    }
  }

  /// Adds the keys and values that ranks exchange in the forward and again in the
  /// backward, and the fp32 gradients of keys and values (parallel/context/).
  void context(const UnitDescription& unit, int64_t forwards) {
    const int64_t ranks = layout_.shape.cp;
    if (ranks == 1) return;
    const bool again = passes_.form_of(unit).recompute != ForwardForm::Recompute::None;
    const int64_t rounds = forwards * (again ? 3 : 2);
    const int64_t c = passes_.form.compute_bytes;
    int64_t all = 0;  // bytes of all tensors
    for (const size_t number : unit.forward.kept_positions) {
      const int64_t bytes = unit.forward.tensors[number].bytes(
          passes_.form, passes_.tokens, layout_.tensor.rank(at_.tp));
      all += bytes;
      if (config_.parallel.context == ContextKind::Ring) continue;
      cut(TrafficKind::Context, GroupKind::Cp, Verb::AllGather, rounds, bytes);
      cut(TrafficKind::Context, GroupKind::Cp, Verb::ReduceScatter, forwards,
          bytes / c * 4);
    }
    if (all == 0 || config_.parallel.context != ContextKind::Ring) return;
    const int64_t steps = ranks - 1;
    traffic_.add(TrafficKind::Context, GroupKind::Cp, Verb::SendRecv, steps * rounds,
                 all);
    traffic_.add(TrafficKind::Context, GroupKind::Cp, Verb::SendRecv, steps * forwards,
                 all / c * 4);
  }

  /// Adds the rows of tokens that go to the ranks of their experts and come back, with
  /// one fp32 weight each on the way there, in the forward and again in the backward
  /// (parallel/expert/). The first forward of a micro batch also sends how many rows go
  /// to each expert. All experts are assumed to get equally many rows.
  void experts(const UnitDescription& unit, int64_t forwards) {
    const int64_t ep = layout_.ep;
    if (ep == 1 || unit.forward.routed == 0) return;
    const int64_t rows = passes_.tokens.inside * unit.forward.routed / ep * (ep - 1);
    const int64_t row = passes_.features * passes_.form.compute_bytes;
    const int64_t times = forwards * (runs(unit) + 1);
    traffic_.add(TrafficKind::Experts, GroupKind::Ep, Verb::AllToAll, forwards,
                 unit.forward.routes / ep * (ep - 1) * kRowCountBytes);
    traffic_.add(TrafficKind::Experts, GroupKind::Ep, Verb::SendRecv, times,
                 rows * packed_row_bytes(passes_.features, passes_.form.compute_bytes));
    traffic_.add(TrafficKind::Experts, GroupKind::Ep, Verb::SendRecv, times, rows * row);
  }

 protected:
  const Passes& passes_;
  const RunConfig& config_;
  const LayoutDescription& layout_;
  MeshIndex at_;
  int rank_;
  Groups groups_;
  Traffic traffic_;
};

/// Counts the messages of one rank in one step.
class StepTraffic : public PassTraffic {
 public:
  StepTraffic(const Passes& passes, const RunConfig& config,
              const ModelDescription& model, const LayoutDescription& layout,
              const PipelinePlan& plan, const UnitPlan& units, const MeshIndex& at)
      : PassTraffic(passes, config, layout, at), model_(model), plan_(plan) {
    for (const GradientUse& use : units.gradients) {
      if (use.reduce) ++reductions_[use.unit];
    }
    for (const WeightUse& use : units.weights) {
      for (const int unit : use.gather) ++gathers_[unit];
    }
  }

  Traffic count(const std::vector<BucketPlan>& buckets) {
    boundaries();
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      for (const UnitDescription& unit : model_.units) {
        if (!is_in_stage(unit, layout_.stage(rank_, chunk))) continue;
        add_passes(unit, plan_.micro_batches);
      }
    }
    for (const BucketPlan& bucket : buckets) {
      weights(bucket);
      if (!bucket.frozen) gradients(bucket);
    }
    return take();
  }

 private:
  /// Adds the messages between stages. Each message is a call at both of its ends: what
  /// comes from a neighbour in the forward goes back to it in the backward.
  void boundaries() {
    if (plan_.stages == 1) return;
    int64_t neighbours = 0;
    for (int chunk = 0; chunk < layout_.chunks; ++chunk) {
      const int64_t stage = plan_.global_stage(at_.pp, chunk);
      neighbours += (stage > 0 ? 1 : 0) + (stage + 1 < plan_.global_stages() ? 1 : 0);
    }
    const int64_t messages = neighbours * plan_.micro_batches;
    traffic_.add(TrafficKind::Pipeline, GroupKind::Pp, Verb::SendRecv, messages, 0);
    traffic_.add(TrafficKind::Pipeline, GroupKind::Pp, Verb::SendRecv, messages,
                 passes_.boundary_bytes());
  }

  void gradients(const BucketPlan& bucket) {
    const int64_t wire = config_.precision.reduce == StateType::Fp32 ? 4 : 2;
    const int64_t times = bucket.grads_stay ? 1 : reductions_[bucket.unit];
    if (groups_.place(layout_.shard_group(bucket), rank_).size == 1) {
      all_reduce(TrafficKind::Gradients, layout_.replica_group(bucket), times,
                 bucket.num_elements, wire);
    } else {
      cut(TrafficKind::Gradients, layout_.shard_group(bucket), Verb::ReduceScatter, times,
          bucket.owned.size() * wire);
      all_reduce(TrafficKind::Gradients, layout_.replica_group(bucket), 1,
                 bucket.owned.size(), wire);
    }
    if (bucket.sum_group == kNoSum) return;
    const GroupKind copies = LayoutDescription::copy_group(bucket.sum_group);
    if (bucket.sum_group == kTensorFirst) {
      take_first(copies, bucket.owned.size());
    } else {
      all_reduce(TrafficKind::Gradients, copies, 1, bucket.owned.size(), wire);
    }
  }

  /// Adds the broadcast of gradients that the first rank of a group sends to the others.
  void take_first(GroupKind group, int64_t count) {
    const GroupPlace place = groups_.place(group, rank_);
    const int64_t element = config_.precision.gradients == StateType::Fp32 ? 4 : 2;
    traffic_.add(TrafficKind::Gradients, owner(group), Verb::Broadcast, 1,
                 sent_by_broadcast(place.size, place.index, count, element));
  }

  void weights(const BucketPlan& bucket) {
    if (layout_.shards == 1) return;
    // Weights that stay are gathered after the update, which frozen ones do not see.
    if (bucket.weights_stay && bucket.frozen) return;
    cut(TrafficKind::Weights, layout_.shard_group(bucket), Verb::AllGather,
        bucket.weights_stay ? 1 : gathers_[bucket.unit],
        bucket.owned.size() * passes_.form.compute_bytes);
  }

  const ModelDescription& model_;
  const PipelinePlan& plan_;
  std::map<int, int64_t> reductions_;  ///< of a unit's gradients in a step
  std::map<int, int64_t> gathers_;     ///< of a unit's weights in a step
};

}  // namespace

const char* traffic_name(TrafficKind kind) {
  constexpr std::array<const char*, kTrafficKinds> kNames = {
      "pipeline", "tensor", "context", "experts", "gradients", "weights"};
  return kNames.at(static_cast<size_t>(kind));
}

const char* verb_name(Verb verb) {
  constexpr std::array<const char*, kVerbs> kNames = {
      "send_recv",  "all_reduce", "all_gather", "reduce_scatter",
      "all_to_all", "broadcast",  "barrier"};
  return kNames.at(static_cast<size_t>(verb));
}

std::string_view operation_name(const TrafficLine& line) {
  const bool rows = line.kind == TrafficKind::Experts && line.verb == Verb::SendRecv;
  return rows ? "expert rows" : verb_name(line.verb);
}

int64_t Traffic::bytes(TrafficKind kind) const {
  int64_t sum = 0;
  for (const TrafficLine& line : lines_) {
    if (line.kind == kind) sum += line.bytes;
  }
  return sum;
}

void Traffic::add(TrafficKind kind, GroupKind group, Verb verb, int64_t calls,
                  int64_t bytes) {
  const auto found = std::ranges::find_if(lines_, [&](const TrafficLine& line) {
    return line.kind == kind && line.group == group && line.verb == verb;
  });
  TrafficLine& line = found != lines_.end()
                          ? *found
                          : lines_.emplace_back(TrafficLine{kind, group, verb});
  line.calls += calls;
  line.bytes += calls * bytes;
}

Traffic step_traffic(const Passes& passes, const RunConfig& config,
                     const ModelDescription& model, const LayoutDescription& layout,
                     const PipelinePlan& plan, const UnitPlan& units,
                     const std::vector<BucketPlan>& buckets, const MeshIndex& at) {
  return StepTraffic(passes, config, model, layout, plan, units, at).count(buckets);
}

Traffic pass_traffic(const Passes& passes, const RunConfig& config,
                     const LayoutDescription& layout, const MeshIndex& at,
                     const UnitDescription& unit) {
  PassTraffic traffic(passes, config, layout, at);
  traffic.add_passes(unit, 1);
  return traffic.take();
}

}  // namespace longhaul::layout
