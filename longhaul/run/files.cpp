#include "longhaul/run/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "longhaul/base/numbers.h"

namespace longhaul::run {
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr size_t kMostRunsNamed = 5;
constexpr const char* kRunFiles[] = {kMetricsFile, kEventsFile, kStatusFile, kConfigFile,
                                     kRunLockFile};

}  // namespace

std::string trace_file(int64_t step) { return fmt::format("trace_step_{}.json", step); }

std::string handed_nodes_file(const std::string& job) {
  return fmt::format("control/excluded_of_{}.json", job);
}

std::string stacks_file(double time) {
  return fmt::format("control/stacks_{:.0f}.txt", time);
}

bool holds_run(const fs::path& dir) {
  return std::ranges::any_of(kRunFiles,
                             [&](const char* name) { return is_seen(dir / name); });
}

std::string runs_below(const fs::path& dir) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir.empty() ? "." : dir, error), end;
       !error && it != end && names.size() < kMostRunsNamed; it.increment(error)) {
    if (holds_run(it->path())) names.insert((dir / it->path().filename()).string());
  }
  return names.empty() ? "" : fmt::format(", such as {}", fmt::join(names, ", "));
}

std::string step_directory_name(int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<int64_t> step_of(const fs::path& step_dir) {
  const std::string name = step_dir.filename().string();
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  // The name of a checkpoint that was set aside has further characters behind its step.
  const auto step =
      whole_number<int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  // A name such as step_5, which other programs write, is no name of ours.
  return step >= 0 && name == step_directory_name(*step) ? step : std::nullopt;
}

}  // namespace longhaul::run
