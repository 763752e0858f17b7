#include "longhaul/cluster/down_time.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/base/lenient_json.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
namespace {

/// More than some seconds of steps write.
constexpr uint64_t kTailBytes = uint64_t{256} << 10;
constexpr int kMostDepth = 16;

/// The last whole lines of a file that are JSON objects of a start of the ranks, in their
/// order. None where it is not there or cannot be read: it is looked at again.
std::vector<Json> records_at_end(const fs::path& path) {
  std::vector<Json> lines;
  try {
    const File file = File::open_read(path);
    const uint64_t size = file.size();
    std::string text(std::min(size, kTailBytes), '\0');
    file.read_at(size - text.size(), std::as_writable_bytes(std::span(text)));
    // The first may be a part of one.
    size_t at = text.size() < size ? text.find('\n') + 1 : 0;
    for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      try {
        Json line = parse_json(std::string_view(text).substr(at, end - at), path.string(),
                               kMostDepth);
        if (line.is_object() && line.contains("attempt"))
          lines.push_back(std::move(line));
      } catch (const InputError&) {
        // A torn line is nobody's.
      }
    }
  } catch (const Error&) {
    return {};
  }
  return lines;
}

std::string as_it_is(std::string_view text, size_t) { return std::string(text); }

uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

std::optional<Json> DownTime::fault(double now) {
  std::optional<Json> early = give_up(now);
  for (const char* name : {kMetricsFile, kEventsFile}) {
    for (const Json& line : records_at_end(run_dir_ / name)) {
      attempt_ = std::max(attempt_, integer_at(line, "attempt"));
      const double time = number_at(line, "time");
      if (time <= now) since_ = std::max(since_, time);
    }
  }
  return early;
}

void DownTime::restarts(Json fields) {
  pending_ = std::move(fields);
  seen_bytes_ = 0;
}

std::optional<Json> DownTime::look() {
  if (!pending_) return std::nullopt;
  const fs::path metrics = run_dir_ / kMetricsFile;
  const uint64_t bytes = size_of(metrics);
  if (std::exchange(seen_bytes_, bytes) == bytes) return std::nullopt;
  for (const Json& row : records_at_end(metrics)) {
    const int64_t attempt = integer_at(row, "attempt");
    if (attempt <= attempt_ || !row.contains("step_time_s")) continue;
    Json from = started_from([&](int64_t started) { return started == attempt; });
    if (from.is_null()) from = integer_at(row, "step") - 1;
    return finished(from, number_at(row, "time") - number_at(row, "step_time_s"));
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
  for (const Json& event : records_at_end(run_dir_ / kEventsFile)) {
    if (EventHead::read(event, as_it_is).kind != StartEvent::kKind) continue;
    const auto start = read_event<StartEvent>(event, as_it_is);
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
