#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestValue = 160;

std::string value_text(const Json& value) {
  if (value.is_string()) {
    return plain_text(value.get_ref<const std::string&>(), kLongestValue);
  }
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return plain_text(value.dump(-1, ' ', false, Json::error_handler_t::replace),
                    kLongestValue);
}

/// "from_step 40, to_step 30, kind spike".
std::string all_fields(const Json& fields) {
  std::string text;
  for (const auto& [key, value] : fields.items()) {
    if (key == "event" || key == "time" || key == "boot" || key == "booted") continue;
    if (!text.empty()) text += ", ";
    text += plain_text(key, 40) + " " + value_text(value);
  }
  return text;
}

std::string describe_start(const Json& fields) {
  const std::string job = text_at(fields, "job", 60);
  return fmt::format(
      "attempt {} from step {}, {} rank{}{}{}", integer_at(fields, "attempt"),
      integer_at(fields, "step"), integer_at(fields, "world", 1),
      integer_at(fields, "world", 1) == 1 ? "" : "s", job.empty() ? "" : ", job ", job);
}

std::string describe_checkpoint(const Json& fields) {
  return fmt::format("step {}, {} in {:.1f} s, training stood still for {:.2f} s",
                     integer_at(fields, "step"), human_bytes(number_at(fields, "bytes")),
                     number_at(fields, "seconds"),
                     number_at(fields, "stall", number_at(fields, "seconds")));
}

std::string describe_end(const Json& fields) {
  const int64_t signal = integer_at(fields, "signal");
  return fmt::format("step {} after {}{}", integer_at(fields, "step"),
                     human_duration(number_at(fields, "seconds")),
                     signal == 0 ? "" : fmt::format(", stopped by signal {}", signal));
}

}  // namespace

bool is_shown(const Event& event) { return event.kind != "traffic"; }

std::string describe(const Event& event) {
  if (event.kind == "start") return describe_start(event.fields);
  if (event.kind == "checkpoint") return describe_checkpoint(event.fields);
  if (event.kind == "end") return describe_end(event.fields);
  if (event.kind == "failure") return text_at(event.fields, "message");
  return all_fields(event.fields);
}

}  // namespace longhaul::monitor
