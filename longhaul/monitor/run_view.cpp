#include "longhaul/monitor/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/json/lenient_json.h"
#include "longhaul/monitor/life.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_status.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kRecentSteps = 20;
/// The most values of a Course, which is the curve of a quantity such as the loss. A wide
/// terminal has that many columns.
constexpr size_t kCourseValues = 240;
/// The age from which status.json counts as old. A supervisor writes the file every
/// second, unless it is gone or cut off.
constexpr double kFreshSeconds = 30.0;

bool is_final(const std::string& state) {
  return state == run::RunStatus::kDone || state == run::RunStatus::kFailed ||
         state == run::RunStatus::kStopped;
}

/// Returns whether event `i` is the failure of a start that never began to train, in a
/// run that had begun before: it leaves the run as it was.
bool is_refusal(const std::vector<Event>& events, size_t i) {
  if (events[i].kind != run::FailureEvent::kKind) return false;
  bool began = false;
  for (size_t k = 0; k < i; ++k) {
    if (events[k].kind != run::StartEvent::kKind) continue;
    if (events[k].attempt() == events[i].attempt()) return false;
    began = true;
  }
  return began;
}

/// Returns the newest event that begins or ends an attempt, without refused starts; null
/// if there is none.
const Event* last_of_attempts(const std::vector<Event>& events) {
  for (size_t i = events.size(); i-- > 0;) {
    const std::string& kind = events[i].kind;
    if (is_refusal(events, i)) continue;
    if (kind == run::StartEvent::kKind || kind == run::EndEvent::kKind ||
        kind == run::FailureEvent::kKind) {
      return &events[i];
    }
  }
  return nullptr;
}

/// Returns why the newest start was refused; nothing if it was not.
std::optional<std::string> newest_refusal(const std::vector<Event>& events) {
  for (size_t i = events.size(); i-- > 0;) {
    if (events[i].kind == run::StartEvent::kKind) break;
    if (events[i].kind == run::RefusedStartEvent::kKind)
      return events[i].as<run::RefusedStartEvent>().message;
    if (is_refusal(events, i)) return events[i].as<run::FailureEvent>().message;
  }
  return std::nullopt;
}

bool is_paused(const std::vector<Event>& events) {
  for (size_t i = events.size(); i-- > 0;) {
    if (ends_pause(events[i])) return false;
    if (begins_pause(events[i])) return true;
  }
  return false;
}

/// Judges a run without a supervisor by its lock and its events.
void judge_by_lock(const RunFiles& run, RunView& view) {
  const auto& lock = run.lock();
  const Event* last = last_of_attempts(run.events());
  if (lock && lock->alive) {
    view.alive = true;
    const bool stepped = run.records().newest_attempt() >= lock->holder.attempt;
    view.state = is_paused(run.events())
                     ? run::RunStatus::kPaused
                     : (stepped ? run::RunStatus::kTraining : run::RunStatus::kStarting);
    return;
  }
  view.ended = true;
  if (last != nullptr && last->kind == run::EndEvent::kKind) {
    const auto end = last->as<run::EndEvent>();
    const auto goal = run.last_step();
    const bool stopped = end.signal != 0 || !end.stopped_by.empty() ||
                         (goal && end.step.value_or(*goal) < *goal);
    view.state = stopped ? "stopped" : "done";
  } else if (last != nullptr && last->kind == run::FailureEvent::kKind) {
    view.state = run::RunStatus::kFailed;
    view.detail = last->as<run::FailureEvent>().message;
  } else if (auto refusal = newest_refusal(run.events()); refusal && last == nullptr) {
    view.state = run::RunStatus::kFailed;
    view.detail = *refusal;
  } else if (lock) {
    view.state = run::RunStatus::kKilled;
    // A later start that was refused has released the lock of the killed start.
    view.detail =
        lock->holder.released ? "its process is gone" : plain_text(lock->reason);
  } else {
    // Nothing tells who holds the run. The directory may be a copy of a run.
    const bool ran = !run.records().all().empty();
    view.state = ran ? "not running" : "not started";
    view.ended = false;
  }
}

void judge_state(const RunFiles& run, RunView& view) {
  if (const auto& lock = run.lock()) {
    view.attempt = lock->holder.attempt;
    view.job = plain_text(lock->holder.job, 60);
    view.host = plain_text(lock->holder.host, 100);
  }
  view.attempt = std::max<int64_t>(view.attempt, run.records().newest_attempt());
  const auto& status = run.status();
  if (!status) return judge_by_lock(run, view);
  const bool final = is_final(status->state);
  // A start without a supervisor does not change status.json, which still has the last
  // state that an older supervisor wrote.
  const Event* last = last_of_attempts(run.events());
  if (final && last != nullptr && last->time > status->updated) {
    return judge_by_lock(run, view);
  }
  view.job = status->job.empty() ? view.job : status->job;
  view.host = status->host;
  view.restarts = status->restarts;
  const double silent = view.now - status->updated;
  if (final || silent <= kFreshSeconds) {
    view.state = status->state;
    view.detail = status->cause;
    view.alive = !final;
    view.ended = final;
    return;
  }
  judge_by_lock(run, view);
  view.notes.push_back(std::string(run::kStatusFile) +
                       " is old: its supervisor is gone or cut off");
}

/// Returns the median of one member over the last steps that count.
double recent(const Records& records, double run::StepRecord::* member) {
  std::vector<double> values;
  const size_t count = records.counted().size();
  for (size_t i = count - std::min(count, kRecentSteps); i < count; ++i) {
    const run::StepRecord& record = records.counted_at(i);
    if (count > 1 && records.is_first_of_attempt(record)) continue;
    values.push_back(record.*member);
  }
  return median(values);
}

void take_progress(const RunFiles& run, RunView& view) {
  const Records& records = run.records();
  view.last_step = run.last_step();
  for (double* number :
       {&view.loss, &view.grad_norm, &view.lr, &view.step_time, &view.seqs_per_s,
        &view.tokens_per_s, &view.mfu, &view.memory_peak, &view.step_age}) {
    *number = run::kNoFigure;
  }
  for (const ValidationRow& v : records.validations()) {
    if (v.counts && !v.of_task()) view.validation = v;
  }
  if (view.validation) view.validation->name = plain_text(view.validation->name, 60);
  const run::StepRecord* last = records.last();
  if (last == nullptr) return;
  const run::StepNumbers& numbers = *last;
  static_cast<run::StepNumbers&>(view) = numbers;
  view.step_age = std::max(0.0, run.clock().now(view.now) - last->time);
  view.step_time = recent(records, &run::StepRecord::step_time);
  view.seqs_per_s = recent(records, &run::StepRecord::seqs_per_s);
  view.tokens_per_s = recent(records, &run::StepRecord::tokens_per_s);
  view.mfu = recent(records, &run::StepRecord::mfu);
}

/// Returns the course of one member of the steps that count. A run of any length has at
/// most kCourseValues values.
Course course_of(const Records& records, double run::StepRecord::* member) {
  Course course;
  course.first = course.last = course.least = course.most = run::kNoFigure;
  const size_t count = records.counted().size();
  const size_t shares = std::min(count, kCourseValues);
  for (size_t share = 0; share < shares; ++share) {
    double sum = 0.0;
    size_t finite = 0;
    for (size_t i = share * count / shares; i < (share + 1) * count / shares; ++i) {
      const double value = records.counted_at(i).*member;
      if (!std::isfinite(value)) continue;
      sum += value;
      ++finite;
      course.least = std::fmin(course.least, value);
      course.most = std::fmax(course.most, value);
    }
    course.values.push_back(finite > 0 ? sum / static_cast<double>(finite)
                                       : run::kNoFigure);
  }
  if (count > 0) {
    course.first = records.counted_at(0).*member;
    course.last = records.counted_at(count - 1).*member;
  }
  return course;
}

/// Estimates the time left from the pace of the last steps, which includes the saves and
/// validations between them.
void guess_time_left(const RunFiles& run, RunView& view) {
  const Records& records = run.records();
  if (!view.alive || !view.last_step || *view.last_step <= view.step) return;
  const size_t count = records.counted().size();
  if (count < 2) return;
  const size_t from = count - std::min<size_t>(count, 200);
  const run::StepRecord& last = records.counted_at(count - 1);
  size_t begin = count - 1;
  while (begin > from && records.counted_at(begin - 1).attempt == last.attempt) --begin;
  const run::StepRecord& first = records.counted_at(begin);
  const auto steps = static_cast<double>(last.step - first.step);
  const double pace = steps > 0 ? (last.time - first.time) / steps : view.step_time;
  if (!(pace > 0.0)) return;
  view.seconds_left = pace * static_cast<double>(*view.last_step - view.step);
  // Before rank 0 has decided where the run ends, run.until may come before the last
  // step.
  const auto until = run.config() ? run.config()->run.until : std::nullopt;
  const double to_date = until ? static_cast<double>(until->seconds) - view.now : 0.0;
  if (to_date > 0.0) view.seconds_left = std::min(*view.seconds_left, to_date);
}

void rank_speeds(const RunFiles& run, RunView& view) {
  if (!run.status()) return;
  view.nodes = run.status()->nodes;
  std::vector<double> busy;
  for (const run::RunStatus::Rank& rank : run.status()->ranks) {
    if (rank.busy_seconds > 0.0) busy.push_back(rank.busy_seconds);
  }
  const double middle = median(busy);
  for (const run::RunStatus::Rank& rank : run.status()->ranks) {
    view.ranks.push_back({rank, middle > 0.0 ? rank.busy_seconds / middle : 0.0});
  }
  std::ranges::stable_sort(view.ranks, std::greater<>(), &RankSpeed::ratio);
}

/// Adds notes about checkpoints above the newest whole one, so that nobody takes the
/// whole one for the newest that there was.
void note_passed_over(RunFiles& run, RunView& view) {
  const int64_t newest = view.checkpoint ? view.checkpoint->step : -1;
  for (const CheckpointInfo& one : run.checkpoints()) {
    const bool under_way = !one.committed && view.alive;
    if (one.valid || one.step < newest || under_way) continue;
    view.notes.push_back(
        fmt::format("the checkpoint of step {} is not whole: {}", one.step, one.problem));
  }
  if (const auto missing = run.missing_step()) {
    view.notes.push_back(fmt::format(
        "the checkpoint of step {} was committed and is not there any more", *missing));
  }
}

Json ranks_json(const RunView& view) {
  Json ranks = Json::array();
  for (const RankSpeed& speed : view.ranks) {
    ranks.push_back({{"rank", speed.rank.rank},
                     {"node", speed.rank.node},
                     {"phase", speed.rank.phase},
                     {"step", speed.rank.step},
                     {"busy_seconds", speed.rank.busy_seconds},
                     {"ratio", speed.ratio},
                     {"waits_for", speed.rank.waits_for},
                     {"waits_seconds", speed.rank.waits_seconds}});
  }
  return ranks;
}

/// Adds a note if the newest start was refused and the run had begun before.
void note_refusal(const RunFiles& run, RunView& view) {
  const auto refusal = newest_refusal(run.events());
  if (!refusal || view.alive || view.detail == *refusal) return;
  view.notes.push_back("a start ended before its first step: " + *refusal);
}

}  // namespace

bool is_done(const std::vector<Event>& events) {
  const Event* last = last_of_attempts(events);
  if (last == nullptr || last->kind != run::EndEvent::kKind) return false;
  const auto end = last->as<run::EndEvent>();
  return end.signal == 0 && end.stopped_by.empty();
}

RunView make_view(RunFiles& run, double now) {
  RunView view;
  view.name = plain_text(fs::absolute(run.dir()).lexically_normal().string());
  while (view.name.size() > 1 && view.name.ends_with('/')) view.name.pop_back();
  view.now = now;
  view.notes = run.notes();
  judge_state(run, view);
  note_refusal(run, view);
  const Event* last = last_of_attempts(run.events());
  view.on_request = view.state == run::RunStatus::kStopped && last != nullptr &&
                    last->kind == run::EndEvent::kKind &&
                    last->as<run::EndEvent>().for_good();
  take_progress(run, view);
  view.loss_course = course_of(run.records(), &run::StepRecord::loss);
  view.memory_course = course_of(run.records(), &run::StepRecord::host_memory);
  guess_time_left(run, view);
  rank_speeds(run, view);
  view.checkpoint = run.newest_checkpoint();
  note_passed_over(run, view);
  view.ledger =
      make_ledger(run.records(), run.events(),
                  view.alive ? std::optional(run.clock().now(now)) : std::nullopt);
  view.restarts = std::max(view.restarts, view.ledger.starts - 1);
  return view;
}

Json to_json(const Ledger& ledger) {
  Json seconds = Json::object();
  for (size_t i = 0; i < kTimeClasses; ++i) {
    const auto kind = static_cast<TimeClass>(i);
    seconds[text_of(kind).key] = ledger.seconds(kind);
  }
  const auto seconds_at = [&](int64_t micros) {
    return ledger.spans.empty() ? Json() : Json(1e-6 * static_cast<double>(micros));
  };
  return {{"begin", seconds_at(ledger.begin())},
          {"end", seconds_at(ledger.end())},
          {"seconds", ledger.total_seconds()},
          {"by_class", seconds},
          {"goodput", ledger.goodput()},
          {"goodput_of_allocation", ledger.goodput_of_allocation()},
          {"steps", ledger.steps_counted},
          {"steps_redone", ledger.steps_redone},
          {"starts", ledger.starts}};
}

Json to_json(const RunView& view) {
  Json json = {{"run", view.name},
               {"time", view.now},
               {"state", view.state},
               {"detail", view.detail},
               {"alive", view.alive},
               {"ended", view.ended},
               {"job", view.job},
               {"host", view.host},
               {"attempt", view.attempt},
               {"restarts", view.restarts},
               {"step", view.step},
               {"last_step", or_null(view.last_step)},
               {run::kLossKey, view.loss},
               {run::kGradNormKey, view.grad_norm},
               {run::kLrKey, view.lr},
               {run::kStepTimeKey, view.step_time},
               {run::kSeqsPerSecondKey, view.seqs_per_s},
               {run::kTokensPerSecondKey, view.tokens_per_s},
               {run::kMfuKey, view.mfu},
               {run::kMemoryPeakKey, view.memory_peak},
               {"seconds_since_step", view.step_age},
               {"seconds_left", or_null(view.seconds_left)},
               {"ledger", to_json(view.ledger)},
               {"nodes", Json::array()},
               {"ranks", ranks_json(view)},
               {"notes", view.notes}};
  if (std::isfinite(view.expert_use)) {
    json[run::kExpertUseKey] = view.expert_use;
    json[run::kExpertBusiestKey] = view.expert_busiest;
    json[run::kRouterEntropyKey] = view.router_entropy;
  }
  for (const run::RunStatus::Node& node : view.nodes) {
    json["nodes"].push_back(run::write_fields(node));
  }
  json["checkpoint"] = nullptr;
  if (view.checkpoint) {
    json["checkpoint"] = {{"step", view.checkpoint->step},
                          {"bytes", view.checkpoint->bytes},
                          {"age_seconds", nullptr}};
    if (view.checkpoint->saved > 0.0) {
      json["checkpoint"]["age_seconds"] = view.now - view.checkpoint->saved;
    }
  }
  json["validation"] = nullptr;
  if (view.validation) {
    json["validation"] = {{"step", view.validation->step},
                          {"name", view.validation->name},
                          {"loss", view.validation->loss}};
  }
  return json;
}

}  // namespace longhaul::monitor
