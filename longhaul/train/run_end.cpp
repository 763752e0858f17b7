#include "longhaul/train/run_end.h"

#include <algorithm>
#include <limits>
#include <string>

#include "longhaul/base/clock.h"
#include "longhaul/base/json.h"
#include "longhaul/comm/agree.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/train/history/end_rule.h"
#include "longhaul/train/history/run_costs.h"

namespace longhaul::train {
namespace {

/// The newest steps that count are as many as the decay has, within these bounds.
constexpr int64_t kShortestWindow = 100;
constexpr int64_t kLongestWindow = 10'000;
/// The number of saves of earlier starts that count. An older stall of storage does not.
constexpr size_t kNewestSaves = 3;

}  // namespace

RunEnd::RunEnd(const TrainingSession& session) : settings_(session.config().run) {
  if (!settings_.ends_by_speed()) return;
  comm::on_rank_zero(session.world(), [this] { read_past(); });
}

void RunEnd::read_past() {
  monitor::RunFiles run(settings_.dir);
  run.refresh();
  std::vector<double> saves;
  for (const monitor::Event& event : run.events()) {
    if (event.kind == run::StartEvent::kKind) {
      const int64_t nodes = event.as<run::StartEvent>().nodes;
      nodes_ = static_cast<double>(std::max<int64_t>(1, nodes));
    }
    if (event.kind == run::CheckpointEvent::kKind) {
      saves.push_back(event.as<run::CheckpointEvent>().seconds);
    }
  }
  const size_t older = saves.size() - std::min(saves.size(), kNewestSaves);
  for (size_t i = older; i < saves.size(); ++i) {
    save_seconds_ = std::max(save_seconds_, saves[i]);
  }
  if (settings_.budget) spent_node_seconds_ = spent_node_seconds(run);
}

double RunEnd::seconds_left() const {
  double left = std::numeric_limits<double>::infinity();
  if (settings_.until) {
    left = static_cast<double>(settings_.until->seconds) - system_time();
  }
  if (settings_.budget && settings_.price_per_node_hour) {
    const double paid = (budget_node_seconds(settings_) - spent_node_seconds_) / nodes_ -
                        since_.seconds();
    left = std::min(left, paid);
  }
  return left;
}

void RunEnd::note_step(int64_t decay) {
  // The first step of a start is longer than the others and does not count.
  if (step_) step_seconds_.push_back(step_->seconds());
  step_.emplace();
  const int64_t window = std::clamp(decay, kShortestWindow, kLongestWindow);
  if (std::ssize(step_seconds_) > 2 * window) {
    step_seconds_.erase(step_seconds_.begin(), step_seconds_.end() - window);
  }
}

std::optional<run::EndDecidedEvent> RunEnd::look(const TrainingSession& session,
                                                 History& history, int64_t most,
                                                 double save_seconds,
                                                 double validation_seconds) {
  const int world = session.world().size();
  optim::ScheduleBasis& basis = *history.schedule;
  if (!settings_.ends_by_speed()) return std::nullopt;
  if (basis.ending && basis.ending->world == world) return std::nullopt;
  double left = 0.0;
  const std::string answer = comm::on_rank_zero(session.world(), [&] {
    note_step(optim::stable_steps(basis).decay);
    left = seconds_left();
    // A save follows the decision, and another one the last step.
    const double after = 2.0 * std::max(save_seconds_, save_seconds) + validation_seconds;
    const auto decided =
        decide_end(step_seconds_, {history.step, most, world, left, after}, basis);
    return decided ? json_text(decided->to_json()) : std::string();
  });
  if (answer.empty()) return std::nullopt;
  basis.ending = optim::Ending::from_json(parse_json(answer, "rank 0's decision"));
  return run::EndDecidedEvent{.step = history.step,
                              .decay_after = basis.ending->begin,
                              .last_step = basis.ending->end,
                              .world = world,
                              .seconds_left = left};
}

}  // namespace longhaul::train
