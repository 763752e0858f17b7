#include "longhaul/parallel/pipeline/trace.h"

#include <fmt/core.h>

#include <utility>

#include "longhaul/base/file.h"

namespace longhaul::parallel {

void Trace::record(std::string name, Lane lane, Clock::time_point begin,
                   Clock::time_point end) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  events_.push_back({std::move(name), lane, Microseconds(begin - origin_).count(),
                     Microseconds(end - begin).count()});
}

std::string Trace::json() const {
  std::string text;
  for (const Event& event : events_) {
    text += fmt::format(
        "{}{{\"name\": \"{}\", \"ph\": \"X\", \"ts\": {:.3f}, \"dur\": {:.3f}, "
        "\"pid\": {}, \"tid\": {}}}",
        text.empty() ? "" : ",\n", event.name, event.begin_us, event.duration_us, rank_,
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
