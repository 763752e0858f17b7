#include "tests/support/simulate_pipeline.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/layout/pipeline/messages.h"

namespace longhaul {
namespace {

using Kind = layout::PipelineAction::Kind;

/// The number of actions of each kind that one chunk has done.
struct ChunkState {
  std::vector<bool> forwarded;
  int64_t forwards = 0;
  int64_t backwards = 0;
  int64_t weights = 0;
};

class OrderCheck {
 public:
  OrderCheck(const layout::PipelinePlan& plan, int rank)
      : plan_(plan), rank_(rank), chunks_(static_cast<size_t>(plan.chunks)) {
    for (ChunkState& state : chunks_) {
      state.forwarded.assign(static_cast<size_t>(plan.micro_batches), false);
    }
  }

  void run() {
    for (const layout::PipelineAction& action : plan_.of(rank_)) check(action);
    const int64_t all = plan_.micro_batches;
    const int64_t trained = plan_.training ? all : 0;
    for (int c = 0; c < plan_.chunks; ++c) {
      const ChunkState& state = chunks_[static_cast<size_t>(c)];
      LH_CHECK(
          state.forwards == all && state.backwards == trained && state.weights == trained,
          "pipeline",
          "rank {}, chunk {}: {} forwards, {} backwards and {} weight gradients for "
          "{} micro batches",
          rank_, c, state.forwards, state.backwards, state.weights, all);
    }
  }

 private:
  void require(bool condition, const layout::PipelineAction& action,
               const char* rule) const {
    LH_CHECK(condition, "pipeline", "rank {}: {} breaks the rule '{}'", rank_,
             to_string(action), rule);
  }

  void check(const layout::PipelineAction& action) {
    require(action.chunk >= 0 && action.chunk < plan_.chunks && action.micro_batch >= 0 &&
                action.micro_batch < plan_.micro_batches,
            action, "chunk and micro batch exist");
    ChunkState& state = chunks_[static_cast<size_t>(action.chunk)];
    const auto forwarded =
        state.forwarded.begin() + static_cast<ptrdiff_t>(action.micro_batch);
    switch (action.kind) {
      case Kind::Forward:
        require(!*forwarded, action, "one forward per micro batch");
        *forwarded = true;
        ++state.forwards;
        break;
      case Kind::Backward:
        require(*forwarded, action, "forward before backward");
        require(action.micro_batch == state.backwards++, action,
                "backwards in ascending micro batches");
        break;
      case Kind::WeightGradients:
        require(action.micro_batch < state.backwards, action,
                "backward before weight gradients");
        require(action.micro_batch == state.weights++, action,
                "weight gradients in ascending micro batches");
        break;
    }
  }

  const layout::PipelinePlan& plan_;
  int rank_;
  std::vector<ChunkState> chunks_;
};

/// The messages from one rank to another. The n-th send meets the n-th receive.
struct Channel {
  struct End {
    layout::PipelineAction consumer;
    double time;
  };
  std::deque<End> sent;
  std::deque<End> posted;
};

class Simulator {
 public:
  Simulator(const layout::PipelinePlan& plan, const PipelineTimes& times)
      : plan_(plan), times_(times) {
    for (int r = 0; r < plan.stages; ++r)
      ranks_.emplace_back(layout::ReceiveOrder(plan, r));
  }

  PipelineSimulation run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int r = 0; r < plan_.stages; ++r) {
        while (step(r)) moved = true;
      }
    }
    check_all_ended();
    PipelineSimulation result;
    for (const Rank& rank : ranks_)
      result.makespan = std::max(result.makespan, rank.clock);
    for (const Rank& rank : ranks_) {
      result.bubble.push_back(result.makespan > 0 ? 1.0 - rank.busy / result.makespan
                                                  : 0.0);
      result.peak_live.push_back(rank.peak_live);
    }
    return result;
  }

 private:
  struct Rank {
    explicit Rank(layout::ReceiveOrder order) : receives(std::move(order)) {}
    layout::ReceiveOrder receives;
    size_t next = 0;      ///< number of the next action
    bool posted = false;  ///< the receives that are due before it were posted
    double clock = 0.0;
    double busy = 0.0;
    int64_t live = 0;
    int64_t peak_live = 0;
    std::map<layout::PipelineAction, double>
        arrived;  ///< the arrival of a consumer's message
  };

  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }

  double duration(Kind kind) const {
    switch (kind) {
      case Kind::Forward:
        return times_.forward;
      case Kind::Backward:
        return times_.backward;
      case Kind::WeightGradients:
        return times_.weight_gradients;
    }
    return 0.0;
  }

  /// Does the next action of the rank if the action can begin. Returns whether it could.
  bool step(int r) {
    Rank& self = rank(r);
    if (self.next == plan_.of(r).size()) return false;
    const layout::PipelineAction& action = plan_.of(r)[self.next];
    if (!self.posted) {
      for (const layout::PipelineMessage& message : self.receives.due(self.next)) {
        Channel& channel = channels_[{message.from, r}];
        channel.posted.push_back({message.consumer, self.clock});
        match(channel, message.from, r);
      }
      self.posted = true;
    }
    double begin = self.clock;
    if (layout::message_before(plan_, r, action)) {
      const auto found = self.arrived.find(action);
      if (found == self.arrived.end()) return false;
      begin = std::max(begin, found->second);
      self.arrived.erase(found);
    }
    if (plan_.training && action.kind == Kind::Forward) {
      self.peak_live = std::max(self.peak_live, ++self.live);
    }
    if (action.kind == Kind::WeightGradients) --self.live;
    self.busy += duration(action.kind);
    self.clock = begin + duration(action.kind);
    ++self.next;
    self.posted = false;
    if (const auto message = layout::message_after(plan_, r, action))
      send(*message, self.clock);
    return true;
  }

  void send(const layout::PipelineMessage& message, double time) {
    if (message.to == message.from) {
      rank(message.to).arrived[message.consumer] = time;
      return;
    }
    Channel& channel = channels_[{message.from, message.to}];
    channel.sent.push_back({message.consumer, time});
    match(channel, message.from, message.to);
  }

  void match(Channel& channel, int from, int to) {
    while (!channel.sent.empty() && !channel.posted.empty()) {
      const Channel::End& sent = channel.sent.front();
      const Channel::End& posted = channel.posted.front();
      LH_CHECK(sent.consumer == posted.consumer, "pipeline",
               "rank {} sends {} where rank {} receives {}", from,
               to_string(sent.consumer), to, to_string(posted.consumer));
      rank(to).arrived[sent.consumer] =
          std::max(sent.time, posted.time) + times_.transfer;
      channel.sent.pop_front();
      channel.posted.pop_front();
    }
  }

  void check_all_ended() {
    std::string waiting;
    for (int r = 0; r < plan_.stages; ++r) {
      if (rank(r).next == plan_.of(r).size()) continue;
      const layout::PipelineAction& action = plan_.of(r)[rank(r).next];
      const auto message = layout::message_before(plan_, r, action);
      waiting +=
          fmt::format("{}rank {} waits in {} for rank {}", waiting.empty() ? "" : ", ", r,
                      to_string(action), message ? message->from : r);
    }
    LH_CHECK(waiting.empty(), "pipeline", "deadlock: {}", waiting);
    for (const auto& [ends, channel] : channels_) {
      LH_CHECK(channel.sent.empty() && channel.posted.empty(), "pipeline",
               "{} messages from rank {} to rank {} are never received and {} never sent",
               channel.sent.size(), ends.first, ends.second, channel.posted.size());
    }
  }

  const layout::PipelinePlan& plan_;
  const PipelineTimes& times_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, Channel> channels_;
};

}  // namespace

void check_order(const layout::PipelinePlan& plan) {
  LH_CHECK(static_cast<int>(plan.actions.size()) == plan.stages, "pipeline",
           "{} lists of actions for {} ranks", plan.actions.size(), plan.stages);
  for (int r = 0; r < plan.stages; ++r) OrderCheck(plan, r).run();
}

PipelineSimulation simulate_pipeline(const layout::PipelinePlan& plan,
                                     const PipelineTimes& times) {
  check_order(plan);
  return Simulator(plan, times).run();
}

}  // namespace longhaul
