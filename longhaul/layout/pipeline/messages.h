#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "longhaul/layout/pipeline/plan.h"

namespace longhaul::layout {

/// The tensors that one stage passes to another: activations for a forward, gradients for
/// a backward. `from` and `to` are equal if both stages lie on one rank.
struct PipelineMessage {
  int from = 0;
  int to = 0;
  PipelineAction consumer;  ///< the action of `to` that needs the message
};

/// Returns the message that `action` of `rank` sends, if there is one.
std::optional<PipelineMessage> message_after(const PipelinePlan& plan, int rank,
                                             const PipelineAction& action);
/// Returns the message that `action` of `rank` waits for, if there is one.
std::optional<PipelineMessage> message_before(const PipelinePlan& plan, int rank,
                                              const PipelineAction& action);

/// The number of actions beyond the next one whose receives are posted: enough for the
/// next forward and the next backward of a steady pipeline.
inline constexpr size_t kReceiveAhead = 3;

/// The order in which a rank posts its receives. Messages between two ranks carry no tag
/// and match in the order of the calls. Receives from a peer are therefore posted in the
/// order in which that peer sends, not in the order in which this rank uses the messages.
class ReceiveOrder {
 public:
  ReceiveOrder(const PipelinePlan& plan, int rank);
  /// Returns the receives to post, in this order, before action number `index` of the
  /// rank runs. Callers pass ascending numbers. Throws if a peer never sends a message
  /// that this rank needs.
  std::vector<PipelineMessage> due(size_t index);

 private:
  void post(const PipelineMessage& wanted, std::vector<PipelineMessage>& posted);

  const PipelinePlan& plan_;
  int rank_;
  size_t looked_at_ = 0;  ///< actions whose messages are posted
  /// For each peer the messages whose receives are not posted yet.
  std::map<int, std::deque<PipelineMessage>> sent_;
  /// Actions whose receive was posted before due() came to the action.
  std::set<PipelineAction> early_;
};

/// Messages that a rank sends and receives in one call.
struct MessageGroup {
  std::vector<PipelineMessage> messages;  ///< in the same order on both of their ranks
};

/// The groups in which a rank posts its messages if transfers run one group after the
/// other (Communicator::transfers_in_order). The plan is simulated with one time slot for
/// each action. Messages that are produced in one slot form one group on both sides, and
/// every rank posts its groups in the order of the slots. The earliest group that is not
/// done therefore waits only for actions that later groups do not hold up, so that no
/// plan can deadlock.
class SlotOrder {
 public:
  SlotOrder(const PipelinePlan& plan, int rank);
  /// Returns the groups to post, in this order, when the first `done` actions of the rank
  /// were run (0: before any). The first group has the message of the action just run.
  const std::vector<MessageGroup>& after(size_t done) const { return groups_.at(done); }

 private:
  /// `groups_[n]` has the groups to post after n actions.
  std::vector<std::vector<MessageGroup>> groups_;
};

}  // namespace longhaul::layout
