#include <fmt/format.h>

#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/profile_table.h"
#include "longhaul/monitor/run_view.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestValue = 160;

std::string value_text(const Json& value) {
  if (value.is_string()) {
    return plain_text(value.get_ref<const std::string&>(), kLongestValue);
  }
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return plain_text(json_text(value), kLongestValue);
}

/// Returns all fields as a text such as "from_step 40, to_step 30, kind spike".
std::string all_fields(const Json& fields) {
  std::string text;
  for (const auto& [key, value] : fields.items()) {
    if (run::EventHead::has(key)) continue;
    if (!text.empty()) text += ", ";
    text += plain_text(key, 40) + " " + value_text(value);
  }
  return text;
}

std::string describe(const run::StartEvent& start) {
  return fmt::format("attempt {} from step {}, {} rank{}{}{}", start.attempt, start.step,
                     start.world, start.world == 1 ? "" : "s",
                     start.job.empty() ? "" : ", job ", start.job);
}

std::string describe(const run::CheckpointEvent& saved) {
  return fmt::format("step {}, {} in {:.1f} s, training stood still for {:.2f} s",
                     saved.step, human_bytes(saved.bytes), saved.seconds,
                     saved.stall.value_or(saved.seconds));
}

std::string describe(const run::EndEvent& end) {
  std::string why;
  if (end.signal != 0) {
    why = fmt::format(", stopped by signal {}", end.signal);
  } else if (end.for_good()) {
    why = ", stopped by " + end.stopped_by;
  }
  return fmt::format("step {} after {}{}", end.step.value_or(0),
                     human_duration(end.seconds), why);
}

std::string describe(const run::BranchEvent& branch) {
  return fmt::format("began with the {} of {}, step {}", branch.took, branch.path,
                     branch.step);
}

}  // namespace

bool is_shown(const Event& event) {
  return event.kind != run::kTrafficEvent && event.kind != run::SampleEvent::kKind &&
         event.kind != run::LayerNormsEvent::kKind &&
         event.kind != run::ExpertLoadsEvent::kKind;
}

std::string describe(const Event& event) {
  if (event.kind == run::StartEvent::kKind) return describe(event.as<run::StartEvent>());
  if (event.kind == run::CheckpointEvent::kKind)
    return describe(event.as<run::CheckpointEvent>());
  if (event.kind == run::EndEvent::kKind) return describe(event.as<run::EndEvent>());
  if (event.kind == run::ProfileEvent::kKind) {
    return describe_profile(event.as<run::ProfileEvent>());
  }
  if (event.kind == run::BranchEvent::kKind)
    return describe(event.as<run::BranchEvent>());
  if (event.kind == run::FailureEvent::kKind)
    return event.as<run::FailureEvent>().message;
  if (event.kind == run::RefusedStartEvent::kKind)
    return event.as<run::RefusedStartEvent>().message;
  return all_fields(event.fields);
}

}  // namespace longhaul::monitor
