#include "longhaul/cluster/slurm/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/slurm/host_list.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr std::string_view kMarks = "*~#!%$@^-+";
constexpr size_t kMostWords = 300;
constexpr double kForever = std::numeric_limits<double>::infinity();

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  std::erase(lines, std::string_view());
  return lines;
}

std::string trimmed(std::string_view text) {
  return std::string(longhaul::trimmed(text, " \t\r\n"));
}

int count_of(std::string_view text, std::string_view what) {
  const auto value = whole_number<int>(text);
  if (!value || *value < 0) {
    fail_input("slurm", "{} is '{}', which is not a count", what, text.substr(0, 80));
  }
  return *value;
}

/// A time such as "2-12:30:15": days, and one to three numbers between colons.
struct ClockTime {
  std::optional<double> days;
  std::vector<double> parts;
};

/// `what` names the time in an InputError.
ClockTime read_time(std::string_view text, const char* what) {
  const std::string part = fmt::format("a part of the {}", what);
  ClockTime time;
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) time.days = count_of(text.substr(0, dash), part);
  for (const std::string_view one : split(text.substr(dash + 1), ':')) {
    time.parts.push_back(count_of(one, part));
  }
  if (time.parts.size() <= 3) return time;
  fail_input("slurm", "'{}' is not a {}; write 30 (minutes), 8:00:00 or 2-12:00:00",
             text.substr(0, 80), what);
}

/// Reads a host list, or "(null)", "None assigned" and the like, which name no host.
std::vector<std::string> hosts_or_none(std::string_view text) {
  if (text.empty() || text.front() == '(' || text == "None assigned") return {};
  return expand_hosts(text);
}

std::string last_words(const CommandResult& result) {
  std::string text = trimmed(result.errors);
  if (text.empty()) text = trimmed(result.output);
  if (text.size() > kMostWords) text = "..." + text.substr(text.size() - kMostWords);
  std::ranges::replace(text, '\n', ';');
  return text;
}

/// Returns whether the controller is down, or so new that it does not know its jobs yet.
/// The controller is not away when it refuses a command.
bool is_away(const CommandResult& result) {
  if (result.ok()) return false;
  if (result.timed_out) return true;
  constexpr std::array<std::string_view, 6> kSigns = {
      "Unable to contact slurm controller",
      "Unexpected message received",
      "Socket timed out",
      "Zero Bytes were transmitted",
      "Connection refused",
      "connect failure"};
  return std::ranges::any_of(kSigns, [&](std::string_view sign) {
    return result.errors.find(sign) != std::string::npos;
  });
}

/// Returns what follows a key that begins a line of scontrol; nothing without such a
/// line.
std::optional<std::string> rest_of_line(std::string_view text, std::string_view key) {
  for (const std::string_view line : lines_of(text)) {
    std::string words = trimmed(line);
    if (words.starts_with(key)) return words.substr(key.size());
  }
  return std::nullopt;
}

[[noreturn]] void refuse_fields(std::string_view program, std::string_view line) {
  fail_temporary("slurm",
                 "{} said '{}', which does not have the fields that were asked for; is "
                 "it Slurm's program?",
                 program, line.substr(0, 200));
}

}  // namespace

void check_job_id(std::string_view id) {
  const size_t underscore = std::min(id.find('_'), id.size());
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.size() <= 10 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (digits(id.substr(0, underscore)) &&
      (underscore == id.size() || digits(id.substr(underscore + 1)))) {
    return;
  }
  fail_input("slurm", "'{}' is not the number of a job, such as 123", id.substr(0, 80));
}

double slurm_seconds(std::string_view text) {
  if (text == "UNLIMITED" || text == "NOT_SET" || text == "INVALID") return kForever;
  const ClockTime time = read_time(text, "time of Slurm");
  double seconds = 0;
  for (const double part : time.parts) seconds = seconds * 60 + part;
  return seconds + time.days.value_or(0) * 86400;
}

double time_limit_seconds(std::string_view text) {
  if (text == "UNLIMITED" || text == "INFINITE") return kForever;
  ClockTime time = read_time(text, "time limit");
  // A time with days, or with three parts, begins with hours. Any other time begins with
  // minutes.
  const bool hours_first = time.days || time.parts.size() == 3;
  const double first = hours_first ? 3600 : 60;
  time.parts.resize(3);
  return time.days.value_or(0) * 86400 + time.parts[0] * first +
         time.parts[1] * first / 60 + (hours_first ? time.parts[2] : 0);
}

std::optional<SlurmJob> slurm_job(const Environment& environment) {
  const auto text = [&](const char* name) -> std::string {
    const char* value = environment(name);
    return value == nullptr ? "" : value;
  };
  SlurmJob job;
  job.id = text("SLURM_JOB_ID");
  if (job.id.empty()) return std::nullopt;
  check_job_id(job.id);
  job.name = text("SLURM_JOB_NAME");
  job.nodes = expand_hosts(text("SLURM_JOB_NODELIST"));
  job.here = text("SLURMD_NODENAME");
  if (const std::string restarts = text("SLURM_RESTART_COUNT"); !restarts.empty()) {
    job.restarts = count_of(restarts, "SLURM_RESTART_COUNT");
  }
  if (const std::string step = text("SLURM_STEP_ID"); !step.empty()) {
    job.step = job.id + "." + step;
  }
  return job;
}

bool NodeStatus::usable() const {
  constexpr std::array<std::string_view, 4> kGood = {"idle", "allocated", "mixed",
                                                     "completing"};
  return responds && std::ranges::find(kGood, state) != kGood.end();
}

SlurmClient::SlurmClient(double deadline_seconds, Runner runner)
    : deadline_seconds_(deadline_seconds),
      runner_(runner ? std::move(runner) : Runner(run_command)) {}

SlurmClient SlurmClient::waiting(SlurmPatience patience) const {
  SlurmClient client = *this;
  client.patience_ = std::move(patience);
  return client;
}

CommandResult SlurmClient::call(const std::vector<std::string>& words) const {
  const system::Stopwatch watch;
  bool told = false;
  while (true) {
    CommandResult result = call_once(words);
    if (!is_away(result) || watch.seconds() >= patience_.seconds) {
      if (!result.timed_out) return result;
      fail_temporary("slurm", "'{}' did not end within {} s; is slurmctld down?",
                     system::describe_command(words), deadline_seconds_);
    }
    if (patience_.tell && !std::exchange(told, true)) {
      patience_.tell(fmt::format(
          "Slurm's controller does not answer '{}' ({}); longhaul waits for "
          "it, at most {:.0f} s",
          system::describe_command(words), last_words(result), patience_.seconds));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(patience_.pause_seconds));
    if (patience_.turn) patience_.turn();
  }
}

CommandResult SlurmClient::call_once(const std::vector<std::string>& words) const {
  CommandOptions options;
  options.deadline_seconds = deadline_seconds_;
  // These variables hold formats that a person has set for himself. Inside of a job, as
  // SLURM_JOBID shows it, scontrol writes files beside the job when nodes are taken away.
  for (const char* name :
       {"SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_STATES", "SQUEUE_SORT", "SINFO_FORMAT",
        "SINFO_SORT", "SLURM_TIME_FORMAT", "SLURM_JOBID"}) {
    options.environment.emplace_back(name, "");
  }
  return runner_(words, options);
}

std::string SlurmClient::answer(const std::vector<std::string>& words) const {
  const CommandResult result = call(words);
  if (!result.ok() || result.cut_short) {
    fail_temporary("slurm", "'{}' ended with {}: {}", system::describe_command(words),
                   result.exit_code, last_words(result));
  }
  return result.output;
}

std::optional<JobStatus> SlurmClient::query_job(const std::string& job) const {
  check_job_id(job);
  const CommandResult result =
      call({"squeue", "-h", "-t", "all", "-j", job, "-o", "%T|%N|%B|%L|%r"});
  if (!result.ok()) {
    if (result.errors.find("Invalid job id") != std::string::npos) return std::nullopt;
    fail_temporary("slurm", "squeue ended with {}: {}", result.exit_code,
                   last_words(result));
  }
  const std::vector<std::string_view> lines = lines_of(result.output);
  if (lines.empty()) return std::nullopt;
  const std::vector<std::string_view> fields = split(lines.front(), '|');
  if (fields.size() != 5) refuse_fields("squeue", lines.front());
  JobStatus status;
  status.state = trimmed(fields[0]);
  status.nodes = hosts_or_none(trimmed(fields[1]));
  status.batch_host = trimmed(fields[2]);
  status.seconds_left = slurm_seconds(trimmed(fields[3]));
  status.reason = trimmed(fields[4]);
  return status;
}

std::vector<StepStatus> SlurmClient::query_steps(const std::string& job) const {
  check_job_id(job);
  std::vector<StepStatus> steps;
  // A person has chosen the name, which may hold a '|', so it stands last.
  const std::string text = answer({"squeue", "-h", "-s", "-j", job, "-o", "%i|%N|%j"});
  for (const std::string_view line : lines_of(text)) {
    const size_t first = line.find('|');
    const size_t second =
        first == std::string_view::npos ? first : line.find('|', first + 1);
    if (second == std::string_view::npos) refuse_fields("squeue", line);
    StepStatus step;
    step.id = trimmed(line.substr(0, first));
    if (step.id.ends_with(".batch") || step.id.ends_with(".extern")) continue;
    step.nodes = hosts_or_none(trimmed(line.substr(first + 1, second - first - 1)));
    step.name = std::string(line.substr(second + 1));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<NodeStatus> SlurmClient::query_nodes(
    const std::vector<std::string>& names) const {
  if (names.empty()) return {};
  const std::string text =
      answer({"sinfo", "-h", "-N", "-n", compress_hosts(names), "-o", "%N|%T"});
  std::vector<NodeStatus> nodes;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<std::string_view> fields = split(line, '|');
    if (fields.size() != 2) refuse_fields("sinfo", line);
    NodeStatus node;
    node.name = trimmed(fields[0]);
    std::string state = trimmed(fields[1]);
    node.responds = state.find('*') == std::string::npos;
    const bool marked = state.find_first_of("~#^") != std::string::npos;
    while (!state.empty() && kMarks.find(state.back()) != std::string_view::npos) {
      state.pop_back();
    }
    node.state = state;
    // After a job has got a node that is off ("~"), a second may pass until Slurm powers
    // it up.
    node.boots = marked && (state == "allocated" || state == "mixed");
    // sinfo names a node once for each of its partitions.
    const auto same = [&](const NodeStatus& other) { return other.name == node.name; };
    if (std::ranges::none_of(nodes, same)) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<std::string> kill_step_command(const std::string& step) {
  const size_t dot = std::min(step.find('.'), step.size());
  check_job_id(step.substr(0, dot));
  count_of(dot == step.size() ? "" : step.substr(dot + 1), "the number of a step");
  return {"scancel", "--quiet", "--signal=KILL", step};
}

std::string SlurmClient::query_comment(const std::string& job) const {
  check_job_id(job);
  return rest_of_line(answer({"scontrol", "show", "job", job}), "Comment=").value_or("");
}

void SlurmClient::set_comment(const std::string& job, const std::string& comment) const {
  check_job_id(job);
  answer({"scontrol", "update", "JobId=" + job, "Comment=" + comment});
}

std::string SlurmClient::query_log(const std::string& job) const {
  check_job_id(job);
  const std::string text = answer({"scontrol", "show", "job", job});
  const auto path = rest_of_line(text, "StdOut=");
  if (path && path->starts_with('/')) return *path;
  fail_temporary("slurm", "scontrol names no StdOut of job {} in '{}'", job,
                 text.substr(0, 200));
}

JobRequest SlurmClient::query_request(const std::string& job) const {
  check_job_id(job);
  const std::string text = answer({"scontrol", "show", "job", job});
  JobRequest request;
  for (const std::string_view line : lines_of(text)) {
    for (const std::string_view word : split(line, ' ')) {
      const size_t equal = std::min(word.find('='), word.size());
      const std::string_view value = word.substr(std::min(equal + 1, word.size()));
      if (word.substr(0, equal) == "Partition") request.partition = value;
      if (word.substr(0, equal) == "ExcNodeList") request.excluded = hosts_or_none(value);
    }
  }
  if (request.partition.empty()) refuse_fields("scontrol", text.substr(0, 200));
  return request;
}

std::vector<std::string> SlurmClient::query_partition(
    const std::string& partition) const {
  const std::string text = answer({"sinfo", "-h", "-N", "-p", partition, "-o", "%N"});
  std::set<std::string> nodes;
  for (const std::string_view line : lines_of(text)) nodes.insert(trimmed(line));
  return {nodes.begin(), nodes.end()};
}

std::vector<std::vector<std::string>> SlurmClient::query_switches() const {
  // The command fails if no topology is configured.
  const CommandResult result = call({"scontrol", "show", "topology"});
  std::vector<std::vector<std::string>> switches;
  if (!result.ok()) return switches;
  for (const std::string_view line : lines_of(result.output)) {
    if (line.find("Level=0") == std::string_view::npos) continue;
    for (const std::string_view word : split(line, ' ')) {
      constexpr std::string_view kKey = "Nodes=";
      if (!word.starts_with(kKey)) continue;
      switches.push_back(hosts_or_none(word.substr(kKey.size())));
    }
  }
  return switches;
}

void SlurmClient::exclude(const std::string& job,
                          const std::vector<std::string>& nodes) const {
  check_job_id(job);
  answer({"scontrol", "update", "JobId=" + job, "ExcNodeList=" + compress_hosts(nodes)});
}

void SlurmClient::keep_nodes(const std::string& job,
                             const std::vector<std::string>& nodes) const {
  check_job_id(job);
  answer({"scontrol", "update", "JobId=" + job, "NodeList=" + compress_hosts(nodes)});
}

void SlurmClient::cancel(const std::string& job) const {
  check_job_id(job);
  answer({"scancel", job});
}

void SlurmClient::requeue(const std::string& job) const {
  check_job_id(job);
  answer({"scontrol", "requeue", job});
}

bool SlurmClient::start_later(const std::string& job, double seconds) const {
  check_job_id(job);
  return call({"scontrol", "update", "JobId=" + job,
               fmt::format("StartTime=now+{:.0f}", seconds)})
      .ok();
}

std::string SlurmClient::submit(const std::string& script_path) const {
  std::string id = trimmed(answer({"sbatch", "--parsable", "--", script_path}));
  // In a federation the cluster's name follows.
  id = id.substr(0, id.find(';'));
  check_job_id(id);
  return id;
}

}  // namespace longhaul::cluster
