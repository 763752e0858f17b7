#include "longhaul/cluster/health/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <exception>
#include <string_view>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/health/gpu_health.h"
#include "longhaul/cluster/health/health_compute.h"
#include "longhaul/cluster/health/health_storage.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/names.h"
#include "longhaul/cluster/process/bounded_child.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kHealthArea = "health";
/// A clock before this time is wrong: this program was written later.
constexpr double kEarliestTime = 1735689600.0;  // 2025-01-01
constexpr size_t kMaxLines = 5;
/// Nodes that reach each other do so within this time, also after a lost packet or two.
constexpr double kPeerSeconds = 4.0;

constexpr NamesOf<HealthResult, 4> kResultNames{{"ok", "failed", "skipped", "warning"}};

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Fails if the time of day does not advance as the steady clock does.
HealthCheck check_clock(double seconds) {
  const double real = seconds_of(CLOCK_REALTIME);
  const double steady = seconds_of(CLOCK_MONOTONIC_RAW);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double passed = seconds_of(CLOCK_MONOTONIC_RAW) - steady;
  const double drift = seconds_of(CLOCK_REALTIME) - real - passed;
  HealthCheck check;
  if (real < kEarliestTime) {
    check = HealthCheck::failed(fmt::format(
        "the clock of this node says {}; set the clock (chronyd)", utc_now()));
  } else if (std::abs(drift) > 0.01 * passed + 0.002) {
    check = HealthCheck::failed(fmt::format(
        "the time of day moved by {:.1f} ms against the steady clock within {:.2f} s; "
        "look at the node's time service (chronyd)",
        1000.0 * drift, passed));
  } else {
    check.text = fmt::format("the time is {}, and the clock ran evenly for {:.2f} s",
                             utc_now(), passed);
  }
  check.values = {{"drift_seconds", drift}, {"over_seconds", passed}};
  return check;
}

/// Returns the last lines of a text as one line, without white space at the end.
std::string last_lines(std::string_view text, size_t count) {
  text = text.substr(0, text.find_last_not_of("\n ") + 1);
  size_t begin = text.size();
  for (size_t line = 0; line < count && begin != std::string_view::npos; ++line) {
    begin = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  }
  std::string lines(begin == std::string_view::npos ? text : text.substr(begin + 1));
  std::ranges::replace(lines, '\n', ' ');
  return lines;
}

HealthCheck check_command(const HealthOptions& options) {
  CommandOptions how;
  how.deadline_seconds = options.command_seconds;
  how.output_bytes = 1 << 16;
  // The user has set this command, as shell text.
  const CommandResult result = run_command({"/bin/sh", "-c", options.command}, how);
  const std::string said =
      last_lines(result.errors.empty() ? result.output : result.errors, kMaxLines);
  HealthCheck check;
  check.text = said.empty() ? "exit 0" : said;
  if (!result.ok()) {
    check = HealthCheck::failed(fmt::format(
        "'{}' {}{}{}", options.command,
        result.timed_out ? fmt::format("did not end within {} s", options.command_seconds)
                         : fmt::format("ended with {}", result.exit_code),
        said.empty() ? "" : ": ", said));
  }
  check.seconds = result.seconds;
  check.values = {{"exit_code", result.exit_code}};
  return check;
}

/// Fails if the file marks the node as unfit. HyperPod's file does not mark the node
/// while its last line is 0. Any other file marks the node by being there.
HealthCheck check_mark(const fs::path& file) {
  HealthCheck check;
  check.text = fmt::format("no {}", file.string());
  if (!is_seen(file)) return check;
  const std::string last =
      last_lines(is_seen_file(file) ? read_text(file, 1 << 16) : "", 1);
  if (last == "0") {
    check.text = fmt::format("{} says 0", file.string());
    return check;
  }
  return HealthCheck::failed(
      fmt::format("the node is marked as unfit by {} ('{}'); remove the file when the "
                  "node is fit again",
                  file.string(), last.substr(0, 80)));
}

}  // namespace

HealthCheck HealthCheck::failed(std::string text) {
  HealthCheck check;
  check.result = HealthResult::Failed;
  check.text = std::move(text);
  return check;
}

void from_json(const Json& json, HealthResult& result) {
  const auto name = json.get<std::string>();
  const auto found = kResultNames.find(name);
  if (!found) fail_input(kHealthArea, "a health check has the unknown result '{}'", name);
  result = *found;
}

void to_json(Json& json, const HealthResult& result) { json = kResultNames.of(result); }

HealthCheck bounded_check(const std::string& name, double deadline_seconds,
                          const std::function<HealthCheck()>& check) {
  const system::Stopwatch watch;
  const BoundedAnswer answer = run_in_bounded_child(
      [&](const auto& write) {
        HealthCheck done;
        try {
          done = check();
        } catch (const std::exception& error) {
          done = HealthCheck::failed(to_error(error).what());
        }
        write(json_text(Json(done)));
      },
      deadline_seconds);
  HealthCheck result;
  if (!answer.in_time) {
    result =
        HealthCheck::failed(fmt::format("no answer within {:.1f} s", deadline_seconds));
  } else if (answer.signal != 0 || answer.text.empty()) {
    result =
        HealthCheck::failed(fmt::format("the check died of signal {}", answer.signal));
  } else {
    parse_json(answer.text, "a health check's answer").get_to(result);
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
  if (!options.peers.empty()) {
    add(kPeersCheck, [&] { return check_peers(options.peers, kPeerSeconds); });
  }
  add("gpu", [&] { return check_gpus(options.nvml_library); });
  if (!options.command.empty()) {
    HealthCheck command;
    try {
      command = check_command(options);
    } catch (const TemporaryError& error) {
      command = HealthCheck::failed(error.what());
    }
    command.name = "command";
    report.checks.push_back(std::move(command));
  }
  report.time = unix_time();
  return report;
}

std::string describe_failed(const std::vector<HealthCheck>& checks) {
  std::string text;
  for (const HealthCheck& check : checks) {
    if (!check.has_failed()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", check.name, check.text);
  }
  return text;
}

std::vector<std::string> check_lines(const std::vector<HealthCheck>& checks) {
  size_t width = 0;
  for (const HealthCheck& check : checks) width = std::max(width, check.name.size());
  std::vector<std::string> lines;
  for (const HealthCheck& check : checks) {
    lines.push_back(fmt::format(
        "{:<8} {:<{}}  {}", check.has_failed() ? "FAILED" : kResultNames.of(check.result),
        check.name, width, check.text));
  }
  return lines;
}

bool HealthReport::ok() const {
  return std::ranges::none_of(checks, &HealthCheck::has_failed);
}

Json HealthReport::summary() const {
  return {{"node", node}, {"ok", ok()}, {"cause", cause()}, {"checks", checks.size()}};
}

Json HealthReport::to_json() const {
  return {{"node", node}, {"time", time}, {"ok", ok()}, {"checks", checks}};
}

HealthReport HealthReport::from_json(const Json& json) {
  try {
    HealthReport report;
    json.at("node").get_to(report.node);
    json.at("time").get_to(report.time);
    json.at("checks").get_to(report.checks);
    return report;
  } catch (const Json::exception& problem) {
    throw InputError(kHealthArea, "not a health report: " + words_of(problem));
  }
}

}  // namespace longhaul::cluster
