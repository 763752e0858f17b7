#pragma once

#include <string>
#include <vector>

#include "longhaul/layout/activations.h"

namespace longhaul {

/// What a rank sends others in a step for.
enum class TrafficKind {
  Pipeline,   ///< activations and their gradients between stages
  Tensor,     ///< sums and rows of split features, and of the loss
  Context,    ///< keys, values and their gradients
  Gradients,  ///< of weights, over those who hold them
  Weights,    ///< gathered from those who update them
};
inline constexpr size_t kTrafficKinds = 5;
/// "pipeline" ...
const char* traffic_name(TrafficKind kind);

/// Operations of comm/, by the names that it has for them: "all_reduce" ...
enum class Exchange { SendRecv, AllReduce, AllGather, ReduceScatter };
const char* exchange_name(Exchange exchange);

/// Operations of one kind in one group, of one rank and step.
struct TrafficLine {
  TrafficKind kind;
  GroupKind group;  ///< whose communicator has the name
  Exchange exchange;
  int64_t calls = 0;
  int64_t bytes = 0;  ///< that the rank sends, as comm/counts.h counts them
};

class Traffic {
 public:
  const std::vector<TrafficLine>& lines() const { return lines_; }
  int64_t bytes(TrafficKind kind) const;
  /// Adds `calls` operations of `bytes` each.
  void add(TrafficKind kind, GroupKind group, Exchange exchange, int64_t calls,
           int64_t bytes);

 private:
  std::vector<TrafficLine> lines_;
};

/// What one rank sends in a step: the passes of `plan`, and what `units` reduces and
/// gathers of its buckets. Not in it: some numbers of a few bytes (targets, loss,
/// norm of the gradients). Nothing but whole parameters that are frozen is left out.
Traffic step_traffic(const Passes& passes, const RunConfig& config,
                     const ModelDescription& model, const LayoutDescription& layout,
                     const PipelinePlan& plan, const UnitPlan& units,
                     const std::vector<BucketPlan>& buckets, const MeshIndex& at);

}  // namespace longhaul
