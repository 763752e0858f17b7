#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "longhaul/layout/pipeline/plan.h"

namespace longhaul {

/// One tensor on its way between two stages: an activation for a forward, a gradient for
/// a backward. `from` and `to` are equal where both stages lie on one rank.
struct PipelineMessage {
  int from = 0;
  int to = 0;
  PipelineAction consumer;  ///< the action of `to` that needs it
};

/// What `action` of `rank` passes on, if anything.
std::optional<PipelineMessage> message_after(const PipelinePlan& plan, int rank,
                                             const PipelineAction& action);
/// What `action` of `rank` has to wait for, if anything.
std::optional<PipelineMessage> message_before(const PipelinePlan& plan, int rank,
                                              const PipelineAction& action);

/// Receives are posted for this many actions beyond the one that is about to run: the
/// next forward and the next backward of a steady pipeline.
inline constexpr size_t kReceiveAhead = 3;

/// In which order a rank posts its receives. Messages of a pair of ranks carry no tag and
/// match in the order of the calls, so receives from a peer are posted in the order in
/// which that peer sends, whatever the order in which this rank uses them.
class ReceiveOrder {
 public:
  ReceiveOrder(const PipelinePlan& plan, int rank);
  /// What to post, in this order, before action number `index` of the rank runs; called
  /// with ascending numbers. Throws where a peer's list lacks what this rank needs.
  std::vector<PipelineMessage> due(size_t index);

 private:
  void post(const PipelineMessage& wanted, std::vector<PipelineMessage>& posted);

  const PipelinePlan& plan_;
  int rank_;
  size_t looked_at_ = 0;  ///< actions whose messages are posted
  std::map<int, std::deque<PipelineMessage>> sent_;  ///< per peer, not yet posted
  std::set<PipelineAction> early_;  ///< posted before their action was looked at
};

/// Messages that a rank sends and receives at one time.
struct MessageGroup {
  std::vector<PipelineMessage> messages;  ///< in the same order on both of their ranks
};

/// In which groups a rank posts its messages where transfers run one group after the
/// other (Communicator::transfers_in_order). Actions are played with unit times; what is
/// produced in one slot of that play is one group on both sides, and every rank posts its
/// groups in the order of the slots. So the earliest group that is not done waits only
/// for actions that later groups do not hold up, and no order of the plan can deadlock.
class SlotOrder {
 public:
  SlotOrder(const PipelinePlan& plan, int rank);
  /// What to post, in this order, once the first `done` of the rank's actions were run:
  /// 0 before any. A group's message of the action just run is in the first.
  const std::vector<MessageGroup>& after(size_t done) const { return groups_.at(done); }

 private:
  std::vector<std::vector<MessageGroup>> groups_;  ///< by actions run
};

}  // namespace longhaul
