#include "longhaul/monitor/goodput.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "longhaul/monitor/life.h"

namespace longhaul::monitor {
namespace {

constexpr std::array<ClassText, kTimeClasses> kTexts = {{
    {"compute", "compute", "steps that count"},
    {"waiting for data", "data", "these steps' waiting for their batch"},
    {"saving", "save", "training stood still for a checkpoint"},
    {"validation", "validation", "validation"},
    {"redone steps", "redone", "steps that a later start or a rollback took back"},
    {"restarts", "restart", "start-up, loading, and from a failure to the next start"},
    {"paused", "paused", "held by a PAUSE file"},
    {"suspended", "suspended", "all processes were stopped (scontrol suspend)"},
    {"idle", "idle", "allocated, but nobody ran or supervised it"},
    {"between jobs", "waiting", "in the queue, or nobody asked for it"},
    {"other", "other", "between steps, and the step under way"},
}};

/// A step, a validation or a save, with its place in time.
struct Item {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t data = 0;  ///< microseconds at the begin of a step that are Data
  TimeClass kind = TimeClass::Compute;
};

bool earlier(const Item& a, const Item& b) { return a.begin < b.begin; }

std::vector<Item> step_items(const Records& records) {
  std::vector<Item> items;
  items.reserve(records.all().size());
  for (const StepRow& record : records.all()) {
    const int64_t end = to_micros(record.time);
    const TimeClass kind = record.counts ? TimeClass::Compute : TimeClass::Redone;
    items.push_back({end - to_micros(record.step_time), end,
                     record.counts ? to_micros(record.data_time) : 0, kind});
  }
  if (!std::is_sorted(items.begin(), items.end(), earlier)) {
    std::stable_sort(items.begin(), items.end(), earlier);
  }
  return items;
}

using AttemptStep = std::pair<int64_t, int64_t>;

/// Places the stall of each save behind the saved step and the validation of that step.
/// The time of the save's event is not used: the event comes when the checkpoint is
/// durable, which may be much later.
class SavePlaces {
 public:
  SavePlaces(const Records& records, const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.kind == run::CheckpointEvent::kKind) begins_[key_of(event)] = 0;
    }
    if (begins_.empty()) return;
    for (const run::StepRecord& record : records.all())
      move(record.attempt, record.step, record.time);
    for (const run::ValidationRecord& v : records.validations())
      move(v.attempt, v.step, v.time);
  }

  std::optional<Item> place(const Event& event) const {
    const auto saved = event.as<run::CheckpointEvent>();
    const double stall = saved.stall.value_or(saved.seconds);
    if (!(stall > 0.0)) return std::nullopt;
    int64_t begin = begins_.at(key_of(event));
    const int64_t durable = to_micros(event.time);
    if (begin == 0 || begin > durable) {  // the records lack this save's step
      begin = durable - to_micros(std::max(saved.seconds, stall));
    }
    return Item{begin, begin + to_micros(stall), 0, TimeClass::Save};
  }

 private:
  static AttemptStep key_of(const Event& event) {
    const auto saved = event.as<run::CheckpointEvent>();
    return {saved.attempt, saved.step};
  }
  void move(int64_t attempt, int64_t step, double time) {
    const auto found = begins_.find({attempt, step});
    if (found != begins_.end()) found->second = std::max(found->second, to_micros(time));
  }
  std::map<AttemptStep, int64_t> begins_;
};

std::vector<Item> other_items(const Records& records, const std::vector<Event>& events) {
  std::vector<Item> items;
  for (const run::ValidationRecord& v : records.validations()) {
    const int64_t end = to_micros(v.time);
    items.push_back({end - to_micros(v.seconds), end, 0, TimeClass::Validation});
  }
  const SavePlaces saves(records, events);
  for (const Event& event : events) {
    if (event.kind != run::CheckpointEvent::kKind) continue;
    if (const auto item = saves.place(event)) items.push_back(*item);
  }
  std::stable_sort(items.begin(), items.end(), earlier);
  return items;
}

/// Appends a span. If the last span has the same class, extends that span instead.
void append(std::vector<Span>& spans, const Span& more) {
  if (more.begin >= more.end) return;
  if (!spans.empty() && spans.back().kind == more.kind) {
    spans.back().end = more.end;
  } else {
    spans.push_back(more);
  }
}

/// Lays spans of time end to end. A later item never changes the spans that are laid
/// already.
class Painter {
 public:
  Painter(Ledger& ledger, const std::vector<LifeChange>& life, int64_t begin)
      : ledger_(ledger), life_(life), cursor_(begin) {}

  void item(const Item& item, int64_t limit) {
    const int64_t end = std::min(item.end, limit);
    if (end <= cursor_) return;
    gap_until(std::min(item.begin, limit));
    // Another step may cover a part of this one. Then the end of this step is the part
    // that counts for it.
    const int64_t data_end = std::min(end, item.begin + item.data);
    if (data_end > cursor_) paint(data_end, TimeClass::Data);
    paint(end, item.kind);
  }

  /// Fills the time up to `end`, which no step, validation or save covers, with the
  /// classes of what the run did then (LifeChange).
  void gap_until(int64_t end) {
    while (cursor_ < end) {
      while (at_ + 1 < life_.size() && life_[at_ + 1].time <= cursor_) ++at_;
      const bool more = at_ + 1 < life_.size();
      const int64_t change = more ? life_[at_ + 1].time : end;
      paint(std::min(end, change), life_.empty() ? TimeClass::Other : life_[at_].kind);
    }
  }

 private:
  void paint(int64_t end, TimeClass kind) {
    if (end <= cursor_) return;
    ledger_.micros[static_cast<size_t>(kind)] += end - cursor_;
    append(ledger_.spans, {cursor_, end, kind});
    cursor_ = end;
  }

  Ledger& ledger_;
  const std::vector<LifeChange>& life_;
  size_t at_ = 0;
  int64_t cursor_;
};

/// Gives a time of the ledger to the class `kind`, in place of the classes that it had.
/// So the time of a suspension does not count for the step that it interrupted.
void give_to(TimeClass kind, int64_t begin, int64_t end, Ledger& ledger) {
  std::vector<Span> spans;
  for (const Span& span : ledger.spans) {
    const int64_t from = std::clamp(begin, span.begin, span.end);
    const int64_t to = std::clamp(end, from, span.end);
    append(spans, {span.begin, from, span.kind});
    append(spans, {from, to, kind});
    append(spans, {to, span.end, span.kind});
    ledger.micros[static_cast<size_t>(span.kind)] -= to - from;
    ledger.micros[static_cast<size_t>(kind)] += to - from;
  }
  ledger.spans = std::move(spans);
}

}  // namespace

const ClassText& text_of(TimeClass kind) { return kTexts[static_cast<size_t>(kind)]; }

int64_t Ledger::total_micros() const {
  return std::accumulate(micros.begin(), micros.end(), int64_t{0});
}

double Ledger::share(TimeClass kind) const {
  const int64_t total = total_micros();
  return total > 0 ? seconds(kind) / (static_cast<double>(total) * 1e-6) : run::kNoFigure;
}

double Ledger::goodput_of_allocation() const {
  const double allocated =
      total_seconds() - seconds(TimeClass::Waiting) - seconds(TimeClass::Suspended);
  return allocated > 0.0 ? seconds(TimeClass::Compute) / allocated : run::kNoFigure;
}

Ledger make_ledger(const Records& records, const std::vector<Event>& events,
                   std::optional<double> until) {
  Ledger ledger;
  ledger.steps_counted = static_cast<int64_t>(records.counted().size());
  ledger.steps_redone = static_cast<int64_t>(records.all().size()) - ledger.steps_counted;
  const Life life = life_of(records, events, until);
  ledger.starts = life.starts;
  if (life.end <= life.begin) return ledger;
  const std::vector<Item> steps = step_items(records);
  const std::vector<Item> others = other_items(records, events);
  std::vector<Item> items;
  items.reserve(steps.size() + others.size());
  std::merge(steps.begin(), steps.end(), others.begin(), others.end(),
             std::back_inserter(items), earlier);
  Painter painter(ledger, life.changes, life.begin);
  for (size_t i = 0; i < items.size(); ++i) {
    // The records tell how long a save stalled, but not exactly when. So a save takes no
    // time from the item that follows.
    const bool yields = items[i].kind == TimeClass::Save && i + 1 < items.size();
    painter.item(items[i], yields ? std::min(life.end, items[i + 1].begin) : life.end);
  }
  painter.gap_until(life.end);
  for (const Event& event : events) {
    if (event.kind != run::SuspendedEvent::kKind) continue;
    const auto suspended = event.as<run::SuspendedEvent>();
    const int64_t end = to_micros(suspended.until);
    give_to(TimeClass::Suspended, end - to_micros(suspended.seconds), end, ledger);
  }
  return ledger;
}

double node_seconds(const Ledger& ledger, const std::vector<Event>& events) {
  std::vector<std::pair<int64_t, int64_t>> starts;  // when a process began, and its nodes
  for (const Event& event : events) {
    if (event.kind != run::StartEvent::kKind) continue;
    const auto start = event.as<run::StartEvent>();
    starts.emplace_back(to_micros(event.time) - to_micros(start.seconds), start.nodes);
  }
  const int64_t newest = starts.empty() ? 1 : std::max<int64_t>(1, starts.back().second);
  for (auto& [begin, nodes] : starts) nodes = nodes > 0 ? nodes : newest;
  std::ranges::stable_sort(starts);
  int64_t nodes = starts.empty() ? newest : starts.front().second;
  size_t next = 0;
  double micros = 0.0;
  for (const Span& span : ledger.spans) {
    const bool paid =
        span.kind != TimeClass::Waiting && span.kind != TimeClass::Suspended;
    int64_t at = span.begin;
    const auto count_until = [&](int64_t end) {
      if (paid) micros += static_cast<double>(nodes) * static_cast<double>(end - at);
      at = end;
    };
    for (; next < starts.size() && starts[next].first < span.end; ++next) {
      count_until(std::max(at, starts[next].first));
      nodes = starts[next].second;
    }
    count_until(span.end);
  }
  return micros * 1e-6;
}

std::vector<std::array<double, kTimeClasses>> ledger_parts(const Ledger& ledger,
                                                           size_t parts) {
  std::vector<std::array<double, kTimeClasses>> out(parts);
  if (ledger.spans.empty() || parts == 0) return out;
  const auto begin = static_cast<double>(ledger.spans.front().begin);
  const double width =
      static_cast<double>(ledger.total_micros()) / static_cast<double>(parts);
  for (const Span& span : ledger.spans) {
    const double from = (static_cast<double>(span.begin) - begin) / width;
    const double to = (static_cast<double>(span.end) - begin) / width;
    for (auto part = static_cast<size_t>(from); part < parts; ++part) {
      const auto left = static_cast<double>(part);
      if (left >= to) break;
      out[part][static_cast<size_t>(span.kind)] +=
          std::min(to, left + 1.0) - std::max(from, left);
    }
  }
  return out;
}

}  // namespace longhaul::monitor
