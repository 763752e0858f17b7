#pragma once

#include <string_view>
#include <vector>

#include "longhaul/layout/activations.h"
#include "longhaul/layout/sent_bytes.h"

namespace longhaul::layout {

/// The purpose of bytes that a rank sends in a step.
enum class TrafficKind {
  Pipeline,   ///< activations and their gradients between stages
  Tensor,     ///< sums and rows of split features and of the loss
  Context,    ///< keys, values and their gradients
  Experts,    ///< rows of tokens, their numbers, experts' results and the gradients
  Gradients,  ///< gradients of weights, combined over the ranks that hold the weights
  Weights,    ///< weights gathered from the ranks that update them
};
inline constexpr size_t kTrafficKinds = 6;
/// Returns the kind's name for tables and messages: "pipeline" ...
const char* traffic_name(TrafficKind kind);

/// Operations of one kind in one group, in a step of one rank.
struct TrafficLine {
  TrafficKind kind;
  GroupKind group;  ///< the group whose communicator carries the operations
  Verb verb;
  int64_t calls = 0;
  int64_t bytes = 0;  ///< bytes that the rank sends, as comm/counts.h counts them
};

/// Returns the name of a line's operation in the profile of a machine: that of its verb,
/// or "expert rows" for messages that go to each rank of the group.
std::string_view operation_name(const TrafficLine& line);

/// What a rank sends in a step, by purpose, group and operation.
class Traffic {
 public:
  const std::vector<TrafficLine>& lines() const { return lines_; }
  int64_t bytes(TrafficKind kind) const;
  /// Adds `calls` operations of `bytes` each.
  void add(TrafficKind kind, GroupKind group, Verb verb, int64_t calls, int64_t bytes);

 private:
  std::vector<TrafficLine> lines_;
};

/// Returns what one rank sends in a step: in the passes of `plan`, and for the buckets
/// that `units` reduces and gathers. A few numbers (targets, loss, norm of the gradients)
/// are not counted, nor are gradients of frozen parameters.
Traffic step_traffic(const Passes& passes, const RunConfig& config,
                     const ModelDescription& model, const LayoutDescription& layout,
                     const PipelinePlan& plan, const UnitPlan& units,
                     const std::vector<BucketPlan>& buckets, const MeshIndex& at);

/// Returns what one rank sends in the forward and the backward of a unit for one micro
/// batch over tp, cp and ep. The layout needs neither stages nor buckets for it.
Traffic pass_traffic(const Passes& passes, const RunConfig& config,
                     const LayoutDescription& layout, const MeshIndex& at,
                     const UnitDescription& unit);

}  // namespace longhaul::layout
