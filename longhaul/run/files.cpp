#include "longhaul/run/files.h"
#include "longhaul/base/numbers.h"

#include <fmt/format.h>

#include <string_view>

namespace longhaul::run {
namespace {

constexpr std::string_view kStepPrefix = "step_";

}  // namespace

std::string trace_file(int64_t step) { return fmt::format("trace_step_{}.json", step); }

std::string handed_nodes_file(const std::string& job) {
  return fmt::format("control/excluded_of_{}.json", job);
}

std::string stacks_file(double time) {
  return fmt::format("control/stacks_{:.0f}.txt", time);
}

std::string step_directory_name(int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<int64_t> step_of(const fs::path& step_dir) {
  const std::string name = step_dir.filename().string();
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  // One that was set aside has more behind its number.
  const auto step =
      whole_number<int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  return step >= 0 ? step : std::nullopt;
}

}  // namespace longhaul::run
