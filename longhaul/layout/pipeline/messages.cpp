#include "longhaul/layout/pipeline/messages.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

using Kind = PipelineAction::Kind;

bool crosses_stages(const PipelineAction& action) {
  return action.kind == Kind::Forward || action.kind == Kind::Backward;
}

int rank_of(const PipelinePlan& plan, int64_t global_stage) {
  return static_cast<int>(global_stage % plan.stages);
}

/// The stage that lies `steps` further on in the direction of the action, if there is
/// one.
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

}  // namespace longhaul
