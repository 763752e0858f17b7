#include "longhaul/cluster/health/health.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <exception>
#include <string_view>
#include <system_error>

#include "longhaul/base/failure.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/health/gpu_health.h"
#include "longhaul/cluster/health/health_compute.h"
#include "longhaul/cluster/health/health_storage.h"
#include "longhaul/cluster/process/bounded_child.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kArea = "health";
/// Nobody's clock has been right before this program was written.
constexpr double kEarliestTime = 1735689600.0;  // 2025-01-01
constexpr size_t kMaxLines = 5;

const char* name_of(HealthResult result) {
  switch (result) {
    case HealthResult::Ok:
      return "ok";
    case HealthResult::Failed:
      return "failed";
    case HealthResult::Skipped:
      return "skipped";
  }
  return "failed";
}

HealthResult result_of(const std::string& name) {
  for (const auto result :
       {HealthResult::Ok, HealthResult::Failed, HealthResult::Skipped}) {
    if (name == name_of(result)) return result;
  }
  throw InputError(kArea,
                   fmt::format("a health check has the unknown result '{}'", name));
}

Json check_to_json(const HealthCheck& check) {
  return {{"name", check.name},     {"result", name_of(check.result)},
          {"text", check.text},     {"seconds", check.seconds},
          {"values", check.values}, {"of_file_system", check.of_file_system}};
}

HealthCheck check_from_json(const Json& json) {
  HealthCheck check;
  try {
    check.name = json.at("name").get<std::string>();
    check.result = result_of(json.at("result").get<std::string>());
    check.text = json.at("text").get<std::string>();
    check.seconds = json.at("seconds").get<double>();
    check.values = json.at("values");
    check.of_file_system = json.value("of_file_system", false);
  } catch (const nlohmann::json::exception& problem) {
    throw InputError(kArea, std::string("not a health check: ") + words_of(problem));
  }
  return check;
}

HealthCheck failed(const std::string& name, const std::string& text) {
  HealthCheck check;
  check.name = name;
  check.result = HealthResult::Failed;
  check.text = text;
  return check;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The clock of the day must run as the one since the start does.
HealthCheck check_clock(double seconds) {
  HealthCheck check;
  const double real = seconds_of(CLOCK_REALTIME);
  const double steady = seconds_of(CLOCK_MONOTONIC_RAW);
  const auto whole = static_cast<time_t>(seconds);
  const timespec pause{whole, static_cast<long>(1e9 * (seconds - double(whole)))};
  ::nanosleep(&pause, nullptr);
  const double passed = seconds_of(CLOCK_MONOTONIC_RAW) - steady;
  const double drift = seconds_of(CLOCK_REALTIME) - real - passed;
  check.values = {{"drift_seconds", drift}, {"over_seconds", passed}};
  check.text = fmt::format("{} of the day against {:.2f} s", utc_now(), passed);
  if (real < kEarliestTime) {
    check.result = HealthResult::Failed;
    check.text = fmt::format("it is {} here; set the clock (chronyd)", utc_now());
  } else if (std::abs(drift) > 0.01 * passed + 0.002) {
    check.result = HealthResult::Failed;
    check.text = fmt::format(
        "the time of day moved by {:.1f} ms against the steady clock within {:.2f} s; "
        "look at the node's time service (chronyd)",
        1000.0 * drift, passed);
  }
  return check;
}

std::string last_lines(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  size_t begin = text.size();
  for (size_t line = 0; line < kMaxLines && begin != std::string_view::npos; ++line) {
    begin = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  }
  std::string lines(begin == std::string_view::npos ? text : text.substr(begin + 1));
  std::ranges::replace(lines, '\n', ' ');
  return lines;
}

HealthCheck check_command(const HealthOptions& options) {
  HealthCheck check;
  check.name = "command";
  CommandOptions how;
  how.deadline_seconds = options.command_seconds;
  how.output_bytes = 1 << 16;
  // The user's own setting, in the user's own shell language.
  const CommandResult result = run_command({"/bin/sh", "-c", options.command}, how);
  const std::string said =
      last_lines(result.errors.empty() ? result.output : result.errors);
  check.seconds = result.seconds;
  check.values = {{"exit_code", result.exit_code}};
  check.text = said.empty() ? "exit 0" : said;
  if (!result.ok()) {
    check.result = HealthResult::Failed;
    check.text = fmt::format(
        "'{}' {}{}{}", options.command,
        result.timed_out ? fmt::format("did not end within {} s", options.command_seconds)
                         : fmt::format("ended with {}", result.exit_code),
        said.empty() ? "" : ": ", said);
  }
  return check;
}

/// HyperPod's file may be there with a 0 in it; a file of one's own marks by being there.
HealthCheck check_mark(const fs::path& file) {
  HealthCheck check;
  check.name = "mark";
  check.text = fmt::format("no {}", file.string());
  std::error_code wrong;
  if (!fs::exists(file, wrong)) return check;
  std::string text = fs::is_regular_file(file, wrong) ? read_text(file, 1 << 16) : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::string last = text.substr(text.rfind('\n') + 1);
  if (last == "0") {
    check.text = fmt::format("{} says 0", file.string());
    return check;
  }
  check.result = HealthResult::Failed;
  check.text = fmt::format(
      "the node is marked as unfit by {} ('{}'); remove the file when it is fit again",
      file.string(), last.substr(0, 80));
  return check;
}

}  // namespace

HealthCheck bounded_check(const std::string& name, double deadline_seconds,
                          const std::function<HealthCheck()>& check) {
  const Stopwatch watch;
  const BoundedAnswer answer = run_in_bounded_child(
      [&](const auto& write) {
        Json json;
        try {
          json = check_to_json(check());
        } catch (const std::exception& error) {
          json = check_to_json(failed(name, to_error(error).what()));
        }
        write(json_text(json));
      },
      deadline_seconds);
  HealthCheck result;
  if (!answer.in_time) {
    result = failed(name, fmt::format("no answer within {:.1f} s", deadline_seconds));
  } else if (answer.signal != 0 || answer.text.empty()) {
    result = failed(name, fmt::format("the check died of signal {}", answer.signal));
  } else {
    result = check_from_json(parse_json(answer.text, "a health check's answer"));
  }
  result.name = name;
  result.seconds = watch.seconds();
  return result;
}

HealthReport check_node(const HealthOptions& options) {
  HealthReport report;
  report.node = host_name();
  const auto add = [&](const std::string& name,
                       const std::function<HealthCheck()>& work) {
    report.checks.push_back(bounded_check(name, options.check_seconds, work));
  };
  if (!options.unhealthy_file.empty()) {
    add("mark", [&] { return check_mark(options.unhealthy_file); });
  }
  add("clock", [&] { return check_clock(options.quick ? 0.05 : 0.25); });
  add("compute", [&] { return check_compute(options.quick ? 0.1 : 1.5); });
  add("memory", [&] {
    return options.quick ? check_memory(0.15, uint64_t{64} << 20)
                         : check_memory(2.0, uint64_t{2} << 30);
  });
  for (const fs::path& directory : options.directories) {
    add("disk " + directory.string(), [&] {
      return check_directory(directory, uint64_t{options.quick ? 1U : 16U} << 20,
                             options.min_free_bytes);
    });
  }
  add("gpu", [&] { return check_gpus(options.nvml_library); });
  if (!options.command.empty()) {
    try {
      report.checks.push_back(check_command(options));
    } catch (const TemporaryError& error) {
      report.checks.push_back(failed("command", error.what()));
    }
  }
  report.time = unix_time();
  return report;
}

bool HealthReport::ok() const {
  return std::ranges::none_of(checks, [](const HealthCheck& check) {
    return check.result == HealthResult::Failed;
  });
}

std::string HealthReport::cause() const {
  std::string text;
  for (const HealthCheck& check : checks) {
    if (check.result != HealthResult::Failed) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", check.name, check.text);
  }
  return text;
}

std::vector<std::string> HealthReport::lines() const {
  size_t width = 0;
  for (const HealthCheck& check : checks) width = std::max(width, check.name.size());
  std::vector<std::string> lines;
  for (const HealthCheck& check : checks) {
    const std::string result =
        check.result == HealthResult::Failed ? "FAILED" : name_of(check.result);
    lines.push_back(
        fmt::format("{:<8} {:<{}}  {}", result, check.name, width, check.text));
  }
  return lines;
}

Json HealthReport::summary() const {
  return {{"node", node}, {"ok", ok()}, {"cause", cause()}, {"checks", checks.size()}};
}

Json HealthReport::to_json() const {
  Json list = Json::array();
  for (const HealthCheck& check : checks) list.push_back(check_to_json(check));
  return {{"node", node}, {"time", time}, {"ok", ok()}, {"checks", std::move(list)}};
}

HealthReport HealthReport::from_json(const Json& json) {
  HealthReport report;
  try {
    report.node = json.at("node").get<std::string>();
    report.time = json.at("time").get<double>();
    for (const Json& check : json.at("checks")) {
      report.checks.push_back(check_from_json(check));
    }
  } catch (const nlohmann::json::exception& problem) {
    throw InputError(kArea, std::string("not a health report: ") + words_of(problem));
  }
  return report;
}

}  // namespace longhaul::cluster
