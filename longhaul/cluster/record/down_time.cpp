#include "longhaul/cluster/record/down_time.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"
#include "longhaul/run/step_record.h"

namespace longhaul::cluster {
namespace {

/// Bytes that are read at the end of a file: more than the steps of some seconds write.
constexpr uint64_t kTailBytes = uint64_t{256} << 10;
constexpr int kMostDepth = 16;

/// Hands over the last whole lines of a file, in their order, each followed by the
/// padding that read_record needs. Hands over nothing if the file is absent or cannot be
/// read: a later call reads it again.
void lines_at_end(const fs::path& path,
                  const std::function<void(std::string_view line)>& use) {
  std::string text;
  size_t at = 0;
  try {
    const File file = File::open_read(path);
    const uint64_t size = file.size();
    text.resize(std::min(size, kTailBytes));
    file.read_at(size - text.size(), std::as_writable_bytes(std::span(text)));
    // The first line may be cut.
    at = text.size() < size ? text.find('\n') + 1 : 0;
  } catch (const Error&) {
    return;
  }
  const size_t last = text.rfind('\n');
  text.append(run::kRecordPadding, ' ');
  for (size_t end; last != std::string::npos && at <= last; at = end + 1) {
    end = text.find('\n', at);
    use(std::string_view(text).substr(at, end - at));
  }
}

std::vector<run::RunRecord> records_at_end(const fs::path& run_dir) {
  std::vector<run::RunRecord> records;
  lines_at_end(run_dir / run::kMetricsFile,
               [&](std::string_view line) { records.push_back(run::read_record(line)); });
  return records;
}

/// Returns the newest events that name an attempt.
std::vector<Json> events_at_end(const fs::path& run_dir) {
  std::vector<Json> events;
  lines_at_end(run_dir / run::kEventsFile, [&](std::string_view line) {
    try {
      Json event = parse_json(line, run::kEventsFile, kMostDepth);
      if (event.is_object() && run::EventHead::attempt_of(event) >= 0)
        events.push_back(std::move(event));
    } catch (const InputError&) {
      // A torn line is left out.
    }
  });
  return events;
}

std::string as_it_is(std::string_view text, size_t) { return std::string(text); }

uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

void DownTime::begin() {
  see_attempts(since_);
  first_ = attempt_;
}

bool DownTime::has_begun() const {
  return !started_from([&](int64_t started) { return started > first_; }).is_null();
}

std::optional<Json> DownTime::fault(double now) {
  std::optional<Json> early = give_up(now);
  see_attempts(now);
  return early;
}

/// Takes note of the newest attempt, and of the time of its last record up to `now`.
void DownTime::see_attempts(double now) {
  const auto see = [&](int64_t attempt, double time) {
    attempt_ = std::max(attempt_, attempt);
    if (time <= now) since_ = std::max(since_, time);
  };
  for (const run::RunRecord& record : records_at_end(run_dir_)) {
    if (const auto* step = std::get_if<run::StepRecord>(&record))
      see(step->attempt, step->time);
    if (const auto* v = std::get_if<run::ValidationRecord>(&record))
      see(v->attempt, v->time);
  }
  for (const Json& event : events_at_end(run_dir_)) {
    const run::EventHead head = run::EventHead::read(event, as_it_is);
    see(head.attempt, head.time);
  }
}

void DownTime::restarts(Json fields) {
  pending_ = std::move(fields);
  seen_bytes_ = 0;
}

std::optional<Json> DownTime::look() {
  if (!pending_) return std::nullopt;
  const uint64_t bytes = size_of(run_dir_ / run::kMetricsFile);
  if (std::exchange(seen_bytes_, bytes) == bytes) return std::nullopt;
  for (const run::RunRecord& record : records_at_end(run_dir_)) {
    const auto* const row = std::get_if<run::StepRecord>(&record);
    if (row == nullptr || row->attempt <= attempt_) continue;
    Json from = started_from([&](int64_t started) { return started == row->attempt; });
    if (from.is_null()) from = row->step - 1;
    return finished(from, row->time - row->step_time);
  }
  return std::nullopt;
}

std::optional<Json> DownTime::give_up(double now) {
  if (!pending_) return std::nullopt;
  if (auto event = look()) return event;
  return finished(started_from([&](int64_t started) { return started > attempt_; }), now);
}

Json DownTime::started_from(const std::function<bool(int64_t)>& of_attempt) const {
  Json step;
  for (const Json& event : events_at_end(run_dir_)) {
    if (run::EventHead::read(event, as_it_is).kind != run::StartEvent::kKind) continue;
    const auto start = run::read_event<run::StartEvent>(event, as_it_is);
    if (of_attempt(start.attempt)) step = start.step;
  }
  return step;
}

Json DownTime::finished(const Json& from_step, double until) {
  Json event = std::move(*pending_);
  pending_.reset();
  event["from_step"] = from_step;
  event["seconds_down"] = std::max(0.0, until - since_);
  since_ = std::max(since_, until);
  return event;
}

}  // namespace longhaul::cluster
