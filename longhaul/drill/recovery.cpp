#include "longhaul/drill/recovery.h"

#include <algorithm>
#include <utility>

#include "longhaul/base/process.h"

namespace longhaul::drill {

BeforeFault before_fault(const monitor::RunFiles& run) {
  BeforeFault before;
  before.time = unix_time();
  before.records = run.records().all().size();
  before.events = run.events().size();
  before.attempt = run.records().newest_attempt();
  const run::StepRecord* last = run.records().last();
  before.step = last == nullptr ? 0 : last->step;
  return before;
}

Recovery recovery_since(const monitor::RunFiles& run, const BeforeFault& before) {
  Recovery recovery;
  int64_t furthest = before.step;
  bool again = false;
  const auto& records = run.records().all();
  for (size_t i = before.records; i < records.size(); ++i) {
    const run::StepRecord& record = records[i];
    if (record.attempt <= before.attempt) {
      furthest = std::max(furthest, record.step);
      continue;
    }
    if (!std::exchange(again, true)) {
      recovery.steps_redone = std::max<int64_t>(0, furthest - record.step + 1);
    }
    if (record.step <= furthest) continue;
    recovery.came_back = true;
    recovery.seconds_to_new_step = std::max(0.0, record.time - before.time);
    break;
  }
  for (size_t i = before.events; i < run.events().size(); ++i) {
    const monitor::Event& event = run.events()[i];
    if (!recovery.cause.empty()) break;
    if (event.kind == run::FaultEvent::kKind)
      recovery.cause = event.as<run::FaultEvent>().cause;
    if (event.kind == run::RequeueEvent::kKind) {
      recovery.cause = event.as<run::RequeueEvent>().reason;
    }
  }
  return recovery;
}

}  // namespace longhaul::drill
