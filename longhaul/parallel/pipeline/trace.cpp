#include "longhaul/parallel/pipeline/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "longhaul/base/file.h"

namespace longhaul::parallel {
namespace {

/// The names of the lanes, in the order of Trace::Lane.
constexpr std::array<const char*, 7> kLaneNames = {
    "actions", "messages", "parts", "blocks", "operations", "ranks", "device"};

}  // namespace

void Trace::record(std::string name, Lane lane, Clock::time_point begin,
                   Clock::time_point end) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  record_us(std::move(name), lane, Microseconds(begin - origin_).count(),
            Microseconds(end - begin).count());
}

void Trace::record_us(std::string name, Lane lane, double begin, double duration) {
  events_.push_back({std::move(name), lane, begin, duration});
}

std::string Trace::json() const {
  std::string text;
  const auto next = [&] { return text.empty() ? "" : ",\n"; };
  for (size_t lane = 0; lane < kLaneNames.size(); ++lane) {
    const auto uses = [&](const Event& e) { return static_cast<size_t>(e.lane) == lane; };
    if (std::ranges::none_of(events_, uses)) continue;
    text += fmt::format(
        "{}{{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": {}, \"tid\": {}, "
        "\"args\": {{\"name\": \"{}\"}}}}",
        next(), rank_, lane, kLaneNames[lane]);
  }
  for (const Event& event : events_) {
    text += fmt::format(
        "{}{{\"name\": \"{}\", \"ph\": \"X\", \"ts\": {:.3f}, \"dur\": {:.3f}, "
        "\"pid\": {}, \"tid\": {}}}",
        next(), event.name, event.begin_us, event.duration_us, rank_,
        static_cast<int>(event.lane));
  }
  return text;
}

void write_trace(const std::filesystem::path& path,
                 const std::vector<std::string>& json_of_ranks) {
  std::string events;
  for (const std::string& json : json_of_ranks) {
    if (json.empty()) continue;
    if (!events.empty()) events += ",\n";
    events += json;
  }
  write_text_atomic(path, "[\n" + events + "\n]\n");
}

}  // namespace longhaul::parallel
