#include "longhaul/monitor/life.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "longhaul/run/files.h"

namespace longhaul::monitor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
/// The events by which a supervisor reports that the workers are gone. The event
/// `restart` is none of them, since it comes when the workers are back.
constexpr std::array<std::string_view, 3> kFaults = {
    run::FaultEvent::kKind, run::kHangEvent, run::RequeueEvent::kKind};

/// One start of the run. Microseconds since 1970.
struct Attempt {
  int64_t begin = kNever;       ///< of its process
  int64_t first_step = kNever;  ///< begin of the first step
  int64_t last_sign = 0;
  int64_t down = kNever;  ///< ended, failed or was found dead
  bool orderly = false;
  std::string allocation;

  void sign(int64_t from, int64_t to) {
    begin = std::min(begin, from);
    last_sign = std::max(last_sign, to);
  }
};

struct Supervisor {
  int64_t begin = 0;
  int64_t end = kNever;
  std::string allocation;
};

/// Returns the allocation that a start names: a job, and how often the job went back to
/// the queue; empty without a scheduler that allocates.
template <typename Start>
std::string allocation_of(const Event& event) {
  const auto start = event.as<Start>();
  return start.job.empty() ? "" : start.job + "." + std::to_string(start.requeues);
}

/// Returns the class of a time in which nobody ran or supervised the run, by the
/// allocations before and after it.
TimeClass gap_between(const std::string& before, const std::string& after) {
  return !before.empty() && before == after ? TimeClass::Idle : TimeClass::Waiting;
}

using Attempts = std::map<int64_t, Attempt>;

void add_records(const Records& records, Attempts& attempts) {
  Attempt* current = nullptr;
  int64_t number = -1;
  for (const run::StepRecord& record : records.all()) {
    if (current == nullptr || record.attempt != number) {
      number = record.attempt;
      current = &attempts[number];
    }
    const int64_t end = to_micros(record.time);
    const int64_t begin = end - to_micros(record.step_time);
    current->sign(begin, end);
    current->first_step = std::min(current->first_step, begin);
  }
  for (const run::ValidationRecord& v : records.validations()) {
    const int64_t end = to_micros(v.time);
    attempts[v.attempt].sign(end - to_micros(v.seconds), end);
  }
}

void add_event(const Event& event, Attempts& attempts) {
  const int64_t time = to_micros(event.time);
  const int64_t number = event.attempt();
  if (number < 0) return;
  Attempt& attempt = attempts[number];
  const bool start = event.kind == run::StartEvent::kKind;
  attempt.sign(start ? time - to_micros(event.as<run::StartEvent>().seconds) : time,
               time);
  if (start) attempt.allocation = allocation_of<run::StartEvent>(event);
  const bool orderly = event.kind == run::EndEvent::kKind;
  if (orderly || event.kind == run::FailureEvent::kKind) {
    attempt.down = time;
    attempt.orderly = orderly;
  }
}

using InOrder = std::vector<Attempt*>;

InOrder in_order(Attempts& attempts) {
  InOrder order;
  for (auto& [number, attempt] : attempts) order.push_back(&attempt);
  std::ranges::stable_sort(order, {}, [](const Attempt* a) { return a->begin; });
  return order;
}

/// If the supervisor knows of a fault, the attempt that ran has been down since it last
/// wrote something.
void end_at_faults(const std::vector<Event>& events, const InOrder& attempts) {
  for (const Event& event : events) {
    if (std::ranges::find(kFaults, event.kind) == kFaults.end()) continue;
    const int64_t time = to_micros(event.time);
    const auto next = std::ranges::lower_bound(attempts, time, {},
                                               [](const Attempt* a) { return a->begin; });
    if (next == attempts.begin()) continue;
    Attempt& before = **(next - 1);
    if (before.last_sign <= time) before.down = std::min(before.down, before.last_sign);
  }
}

/// Sets the end of each supervisor that has written none. It is the last time at which
/// the run wrote something before the next supervisor began.
void find_ends(const std::vector<Event>& events, const InOrder& attempts, bool lives,
               std::vector<Supervisor>& supervisors) {
  std::vector<int64_t> signs;
  for (const Event& event : events) {
    if (event.kind != run::RefusedStartEvent::kKind)
      signs.push_back(to_micros(event.time));
  }
  for (const Attempt* attempt : attempts) signs.push_back(attempt->last_sign);
  std::ranges::sort(signs);
  for (size_t i = 0; i < supervisors.size(); ++i) {
    Supervisor& one = supervisors[i];
    const bool last = i + 1 == supervisors.size();
    if (one.end != kNever || (last && lives)) continue;
    const auto next =
        last ? signs.end() : std::ranges::lower_bound(signs, supervisors[i + 1].begin);
    one.end = next == signs.begin() ? one.begin : std::max(one.begin, *(next - 1));
  }
}

std::vector<Supervisor> supervisors_of(const std::vector<Event>& events,
                                       const InOrder& attempts, bool lives) {
  std::vector<Supervisor> found;
  for (const Event& event : events) {
    const int64_t time = to_micros(event.time);
    // If the clock was set back, the starts still keep their order.
    const int64_t earliest = found.empty() ? 0 : found.back().begin;
    if (event.kind == run::SupervisorStartEvent::kKind) {
      found.push_back({std::max(time, earliest), kNever,
                       allocation_of<run::SupervisorStartEvent>(event)});
    } else if (event.kind == run::kSupervisorEndEvent && !found.empty() &&
               found.back().end == kNever) {
      found.back().end = std::max(time, earliest);
    }
  }
  find_ends(events, attempts, lives, found);
  return found;
}

/// A time without training, and the allocations of the starts before and after it.
struct Gap {
  int64_t from = 0;
  int64_t to = 0;
  std::string before;
  std::string after;
};

/// Adds a gap to the changes. Its parts under a supervisor are Restart, and the others
/// Idle or Waiting. In a run that never had a supervisor the whole gap is `unsupervised`.
void add_down(const Gap& gap, const std::vector<Supervisor>& supervisors,
              TimeClass unsupervised, std::vector<LifeChange>& changes) {
  if (supervisors.empty()) {
    changes.push_back({gap.from, unsupervised});
    return;
  }
  int64_t at = gap.from;
  std::string before = gap.before;
  auto one = std::ranges::lower_bound(supervisors, gap.from, {}, &Supervisor::begin);
  if (one != supervisors.begin()) --one;
  for (; one != supervisors.end() && one->begin < gap.to; ++one) {
    if (one->begin > at) changes.push_back({at, gap_between(before, one->allocation)});
    before = one->allocation;
    if (one->end <= at) continue;
    changes.push_back({std::max(at, one->begin), TimeClass::Restart});
    at = one->end;
  }
  if (at < gap.to) changes.push_back({at, gap_between(before, gap.after)});
}

void add_pauses(const std::vector<Event>& events, std::vector<LifeChange>& changes) {
  bool open = false;
  for (const Event& event : events) {
    const int64_t time = to_micros(event.time);
    if (!open && begins_pause(event)) {
      changes.push_back({time, TimeClass::Paused});
      open = true;
    } else if (open && ends_pause(event)) {
      // Starts and ends add changes elsewhere. So only `resumed` adds one here.
      if (event.kind == run::kResumedEvent) changes.push_back({time, TimeClass::Other});
      open = false;
    }
  }
}

/// Returns the class of the time between two attempts. A start by hand after an orderly
/// end, or as another job, is no restart: nobody waited for it.
TimeClass between(const Attempt& before, const Attempt* after) {
  if (after == nullptr) return TimeClass::Waiting;
  if (before.orderly || before.allocation != after->allocation) {
    return gap_between(before.allocation, after->allocation);
  }
  return TimeClass::Restart;
}

}  // namespace

int64_t to_micros(double seconds) {
  constexpr double kMost = 1e11;
  if (!(seconds > 0.0)) return 0;
  return std::llround(std::min(seconds, kMost) * 1e6);
}

bool begins_pause(const Event& event) {
  return event.kind == run::SignalEvent::kKind &&
         event.as<run::SignalEvent>().file == run::kPauseFile;
}

bool ends_pause(const Event& event) {
  constexpr std::array<std::string_view, 6> kEnds = {
      run::kResumedEvent,       run::StartEvent::kKind, run::EndEvent::kKind,
      run::FailureEvent::kKind, run::FaultEvent::kKind, run::kSupervisorEndEvent};
  return std::ranges::find(kEnds, event.kind) != kEnds.end();
}

Life life_of(const Records& records, const std::vector<Event>& events,
             std::optional<double> until) {
  Attempts by_number;
  add_records(records, by_number);
  for (const Event& event : events) add_event(event, by_number);
  const InOrder attempts = in_order(by_number);
  end_at_faults(events, attempts);
  const auto supervisors = supervisors_of(events, attempts, until.has_value());

  Life life;
  life.starts = static_cast<int64_t>(attempts.size());
  if (attempts.empty() && supervisors.empty()) return life;
  int64_t last = 0;
  life.begin = kNever;
  for (const Attempt* one : attempts) {
    life.begin = std::min(life.begin, one->begin);
    last = std::max(last, one->down == kNever ? one->last_sign : one->down);
  }
  for (const Supervisor& one : supervisors) {
    life.begin = std::min(life.begin, one.begin);
    last = std::max(last, one.end == kNever ? one.begin : one.end);
  }
  life.end = until ? std::max(to_micros(*until), last) : last;

  add_pauses(events, life.changes);
  const int64_t first = attempts.empty() ? life.end : attempts[0]->begin;
  add_down({life.begin, first, {}, {}}, supervisors, TimeClass::Restart, life.changes);
  for (size_t i = 0; i < attempts.size(); ++i) {
    const Attempt& one = *attempts[i];
    const Attempt* next = i + 1 < attempts.size() ? attempts[i + 1] : nullptr;
    life.changes.push_back({one.begin, TimeClass::Restart});
    if (one.first_step != kNever) {
      life.changes.push_back({one.first_step, TimeClass::Other});
    }
    if (next == nullptr && until && one.down == kNever) break;  // this start is alive
    const int64_t down = one.down == kNever ? one.last_sign : one.down;
    const int64_t to = next != nullptr ? next->begin : life.end;
    if (down >= to) continue;
    const std::string after = next == nullptr ? std::string() : next->allocation;
    add_down({down, to, one.allocation, after}, supervisors, between(one, next),
             life.changes);
  }
  std::ranges::stable_sort(life.changes, {}, &LifeChange::time);
  return life;
}

}  // namespace longhaul::monitor
