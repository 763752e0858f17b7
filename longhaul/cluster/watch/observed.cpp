#include "longhaul/cluster/watch/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::cluster {
namespace {

constexpr size_t kMaxRanks = 4096;
constexpr size_t kMostDevices = 256;

ProcessState process_state_of(const std::string& name) {
  if (const auto state = kProcessStates.find(name)) return *state;
  fail_input(
      "cluster",
      "a node's report has a process state '{}'; start the same program on every node",
      name);
}

double rounded(double seconds) { return std::round(seconds * 1000.0) / 1000.0; }

template <typename Work>
auto parsed(const char* what, Work work) {
  try {
    return work();
  } catch (const Json::exception& error) {
    fail_input("cluster",
               "{} has another form than this program writes: {}; start the same program "
               "on every node",
               what, words_of(error));
  }
}

const Json& list_of(const Json& report, const char* name, size_t most) {
  const Json& list = report.at(name);
  if (!list.is_array() || list.size() > most) {
    fail_input("cluster",
               "a node's report has no list of {}, or has more than {} entries in it",
               name, most);
  }
  return list;
}

}  // namespace

std::string ObservedRank::name() const {
  std::string text = fmt::format("rank {}", rank);
  if (!node.empty()) text += " on " + node;
  if (place) text += fmt::format(" ({})", to_string(*place));
  return text;
}

Json ObservedRank::to_json() const {
  Json longest = Json::object();
  for (const auto& [name, seconds] : longest_phases) longest[name] = rounded(seconds);
  Json row = Json::array();
  const auto put = [&](const auto&... values) { (row.push_back(values), ...); };
  put(rank, world, pid, place ? to_string(*place) : "", step, phase,
      process_state_name(process), exit_code, failure, told, waits, waits_group,
      waits_number, waits_verb, waits_for, rounded(waits_age), rounded(phase_age),
      rounded(progress_age), rounded(gone_age), steps_done, rounded(step_age),
      wall_seconds, busy_seconds, longest, entered, memory_kills, memory_limit);
  return row;
}

ObservedRank ObservedRank::from_json(const Json& json, const std::string& node) {
  return parsed("a rank's report", [&] {
    ObservedRank o;
    std::string place_text;
    std::string process_name;
    size_t field = 0;
    const auto take = [&](auto&... values) { (json.at(field++).get_to(values), ...); };
    take(o.rank, o.world, o.pid, place_text, o.step, o.phase, process_name, o.exit_code,
         o.failure, o.told, o.waits, o.waits_group, o.waits_number, o.waits_verb,
         o.waits_for, o.waits_age, o.phase_age, o.progress_age, o.gone_age, o.steps_done,
         o.step_age, o.wall_seconds, o.busy_seconds, o.longest_phases, o.entered,
         o.memory_kills, o.memory_limit);
    if (json.size() != field) {
      fail_input(
          "cluster",
          "a rank's report has {} fields, not {}; start the same program on every node",
          json.size(), field);
    }
    o.place = run::parse_place(place_text);
    o.process = process_state_of(process_name);
    o.node = node;
    return o;
  });
}

ObservedRank observe(const run::RankState& state, const std::string& node, double now) {
  ObservedRank o;
  const run::RankFacts& same = state;
  static_cast<run::RankFacts&>(o) = same;
  o.node = node;
  if (state.waits) {
    o.waits_group = state.waits_for.group;
    o.waits_number = state.waits_for.number;
    o.waits_verb = state.waits_for.verb;
    o.waits_for = to_string(state.waits_for.name());
    o.waits_age = now - state.waits_since;
  }
  o.phase_age = now - state.phase_since;
  o.progress_age = now - state.last_progress();
  o.step_age = state.steps_done > 0 ? now - state.step_ended : 0.0;
  o.wall_seconds = state.step_wall_seconds;
  o.busy_seconds = state.step_busy_seconds;
  for (const run::RecordedOperation& operation : state.operations) {
    int64_t& newest = o.entered[operation.group];
    newest = std::max(newest, operation.number);
  }
  return o;
}

Json NodeReport::to_json() const {
  Json list = Json::array();
  for (const ObservedRank& rank : ranks) list.push_back(rank.to_json());
  Json gpus = Json::array();
  for (const run::RunStatus::Device& device : devices) gpus.push_back(device.to_json());
  return {{"node", node},
          {"ranks", std::move(list)},
          {"memory_used_bytes", memory_used_bytes},
          {"memory_total_bytes", memory_total_bytes},
          {"cpu_busy", cpu_busy},
          {"devices", std::move(gpus)}};
}

NodeReport NodeReport::from_json(const Json& json) {
  return parsed("a node's report", [&] {
    NodeReport report;
    json.at("node").get_to(report.node);
    json.at("memory_used_bytes").get_to(report.memory_used_bytes);
    json.at("memory_total_bytes").get_to(report.memory_total_bytes);
    json.at("cpu_busy").get_to(report.cpu_busy);
    for (const Json& rank : list_of(json, "ranks", kMaxRanks)) {
      report.ranks.push_back(ObservedRank::from_json(rank, report.node));
    }
    for (const Json& device : list_of(json, "devices", kMostDevices)) {
      report.devices.push_back(run::RunStatus::Device::from_json(device));
    }
    return report;
  });
}

RankList::RankList(const std::vector<ObservedRank>& ranks) {
  reserve(ranks.size());
  for (const ObservedRank& rank : ranks) push_back(&rank);
}

RankList ranks_of(const NodeReports& reports) {
  RankList ranks;
  for (const auto& report : reports) {
    for (const ObservedRank& rank : report->ranks) ranks.push_back(&rank);
  }
  const auto number = [](const ObservedRank* rank) { return rank->rank; };
  // As a rule the nodes come in the order of their ranks.
  if (!std::ranges::is_sorted(ranks, {}, number)) std::ranges::sort(ranks, {}, number);
  return ranks;
}

int64_t furthest_step(const RankList& ranks) {
  int64_t step = 0;
  for (const ObservedRank* rank : ranks) step = std::max(step, rank->step);
  return step;
}

}  // namespace longhaul::cluster
