#include "longhaul/layout/pipeline/messages.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

using Kind = PipelineAction::Kind;

bool crosses_stages(const PipelineAction& action) {
  return action.kind == Kind::Forward || action.kind == Kind::Backward;
}

int rank_of(const PipelinePlan& plan, int64_t global_stage) {
  return static_cast<int>(global_stage % plan.stages);
}

/// Returns the stage that lies `steps` further on in the direction of the action, if
/// there is one.
std::optional<int64_t> neighbour(const PipelinePlan& plan, int rank,
                                 const PipelineAction& action, int64_t steps) {
  if (!crosses_stages(action)) return std::nullopt;
  const int64_t direction = action.kind == Kind::Forward ? 1 : -1;
  const int64_t stage = plan.global_stage(rank, action.chunk) + direction * steps;
  if (stage < 0 || stage >= plan.global_stages()) return std::nullopt;
  return stage;
}

}  // namespace

std::optional<PipelineMessage> message_after(const PipelinePlan& plan, int rank,
                                             const PipelineAction& action) {
  const auto next = neighbour(plan, rank, action, 1);
  if (!next) return std::nullopt;
  return PipelineMessage{
      rank, rank_of(plan, *next), {action.kind, *next / plan.stages, action.micro_batch}};
}

std::optional<PipelineMessage> message_before(const PipelinePlan& plan, int rank,
                                              const PipelineAction& action) {
  const auto previous = neighbour(plan, rank, action, -1);
  if (!previous) return std::nullopt;
  return PipelineMessage{rank_of(plan, *previous), rank, action};
}

namespace {

/// Returns the time slot of every action, by rank and number, if each action takes one
/// slot.
std::vector<std::vector<int64_t>> slots_of(const PipelinePlan& plan) {
  const auto ranks = static_cast<size_t>(plan.stages);
  std::vector<std::vector<int64_t>> slots(ranks);
  std::vector<std::map<PipelineAction, int64_t>> arrives(ranks);  // by consumer
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < plan.stages; ++rank) {
      std::vector<int64_t>& mine = slots[static_cast<size_t>(rank)];
      const auto& actions = plan.of(rank);
      for (; mine.size() < actions.size(); moved = true) {
        const PipelineAction& action = actions[mine.size()];
        int64_t slot = mine.empty() ? 0 : mine.back() + 1;
        if (const auto before = message_before(plan, rank, action)) {
          const auto& arrived = arrives[static_cast<size_t>(rank)];
          const auto found = arrived.find(before->consumer);
          if (found == arrived.end()) break;
          slot = std::max(slot, found->second + 1);
        }
        mine.push_back(slot);
        if (const auto after = message_after(plan, rank, action)) {
          arrives[static_cast<size_t>(after->to)][after->consumer] = slot;
        }
      }
    }
  }
  for (int rank = 0; rank < plan.stages; ++rank) {
    const auto& mine = slots[static_cast<size_t>(rank)];
    LH_CHECK(mine.size() == plan.of(rank).size(), "pipeline",
             "rank {} waits in {} for a message that never comes", rank,
             to_string(plan.of(rank)[mine.size()]));
  }
  return slots;
}

}  // namespace

SlotOrder::SlotOrder(const PipelinePlan& plan, int rank) {
  const auto slots = slots_of(plan);
  std::map<int64_t, MessageGroup> by_slot;
  for (int from = 0; from < plan.stages; ++from) {
    const auto& actions = plan.of(from);
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto message = message_after(plan, from, actions[i]);
      if (!message || message->from == message->to) continue;
      if (message->from != rank && message->to != rank) continue;
      by_slot[slots[static_cast<size_t>(from)][i]].messages.push_back(*message);
    }
  }
  const auto& mine = slots[static_cast<size_t>(rank)];
  groups_.resize(mine.size() + 1);
  for (auto& [slot, group] : by_slot) {
    // The group is posted when the rank has run its actions up to this slot.
    const auto done = std::ranges::upper_bound(mine, slot) - mine.begin();
    groups_[static_cast<size_t>(done)].push_back(std::move(group));
  }
}

ReceiveOrder::ReceiveOrder(const PipelinePlan& plan, int rank)
    : plan_(plan), rank_(rank) {
  for (const int peer :
       {(rank + 1) % plan.stages, (rank + plan.stages - 1) % plan.stages}) {
    if (peer == rank || sent_.contains(peer)) continue;
    std::deque<PipelineMessage>& queue = sent_[peer];
    for (const PipelineAction& action : plan.of(peer)) {
      const auto message = message_after(plan, peer, action);
      if (message && message->to == rank) queue.push_back(*message);
    }
  }
}

std::vector<PipelineMessage> ReceiveOrder::due(size_t index) {
  std::vector<PipelineMessage> posted;
  const auto& actions = plan_.of(rank_);
  const size_t end = std::min(index + 1 + kReceiveAhead, actions.size());
  for (; looked_at_ < end; ++looked_at_) {
    const auto wanted = message_before(plan_, rank_, actions[looked_at_]);
    if (!wanted || wanted->from == rank_) continue;
    if (early_.erase(wanted->consumer) == 0) post(*wanted, posted);
  }
  return posted;
}

void ReceiveOrder::post(const PipelineMessage& wanted,
                        std::vector<PipelineMessage>& posted) {
  std::deque<PipelineMessage>& queue = sent_[wanted.from];
  while (true) {
    LH_CHECK(!queue.empty(), "pipeline",
             "rank {} waits in {} for a message that rank {} never sends", rank_,
             to_string(wanted.consumer), wanted.from);
    posted.push_back(queue.front());
    queue.pop_front();
    if (posted.back().consumer == wanted.consumer) return;
    early_.insert(posted.back().consumer);
  }
}

}  // namespace longhaul::layout
