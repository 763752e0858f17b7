#include "longhaul/cluster/observed.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::cluster {
namespace {

constexpr size_t kMaxRanks = 4096;
constexpr size_t kMaxDevices = 256;

ProcessState process_state_of(const std::string& name) {
  for (const auto state :
       {ProcessState::Running, ProcessState::Stopped, ProcessState::Gone}) {
    if (name == process_state_name(state)) return state;
  }
  throw InputError("cluster", fmt::format("a node's report has a process state '{}'; "
                                          "start the same program on every node",
                                          name));
}

template <typename Work>
auto parsed(const char* what, Work work) {
  try {
    return work();
  } catch (const Json::exception& error) {
    throw InputError("cluster", fmt::format("{} of another form than this program's: "
                                            "{}; start the same program on every node",
                                            what, error.what()));
  }
}

}  // namespace

const char* process_state_name(ProcessState state) {
  switch (state) {
    case ProcessState::Running:
      return "running";
    case ProcessState::Stopped:
      return "stopped";
    case ProcessState::Gone:
      return "gone";
  }
  return "?";
}

std::string ObservedRank::name() const {
  std::string text = fmt::format("rank {}", rank);
  if (!node.empty()) text += " on " + node;
  if (!coordinates.empty()) text += fmt::format(" ({})", coordinates);
  return text;
}

Json ObservedRank::to_json() const {
  return {{"rank", rank},
          {"world", world},
          {"pid", pid},
          {"node", node},
          {"coordinates", coordinates},
          {"step", step},
          {"phase", phase},
          {"process", process_state_name(process)},
          {"exit_code", exit_code},
          {"failure", failure},
          {"waits", waits},
          {"waits_group", waits_group},
          {"waits_number", waits_number},
          {"waits_verb", waits_verb},
          {"waits_for", waits_for},
          {"waits_age", waits_age},
          {"phase_age", phase_age},
          {"progress_age", progress_age},
          {"gone_age", gone_age},
          {"steps_done", steps_done},
          {"step_age", step_age},
          {"wall_seconds", wall_seconds},
          {"busy_seconds", busy_seconds},
          {"longest_phases", longest_phases},
          {"entered", entered}};
}

ObservedRank ObservedRank::from_json(const Json& json) {
  return parsed("a rank's report", [&] {
    ObservedRank o;
    json.at("rank").get_to(o.rank);
    json.at("world").get_to(o.world);
    json.at("pid").get_to(o.pid);
    json.at("node").get_to(o.node);
    json.at("coordinates").get_to(o.coordinates);
    json.at("step").get_to(o.step);
    json.at("phase").get_to(o.phase);
    o.process = process_state_of(json.at("process").get<std::string>());
    json.at("exit_code").get_to(o.exit_code);
    json.at("failure").get_to(o.failure);
    json.at("waits").get_to(o.waits);
    json.at("waits_group").get_to(o.waits_group);
    json.at("waits_number").get_to(o.waits_number);
    json.at("waits_verb").get_to(o.waits_verb);
    json.at("waits_for").get_to(o.waits_for);
    json.at("waits_age").get_to(o.waits_age);
    json.at("phase_age").get_to(o.phase_age);
    json.at("progress_age").get_to(o.progress_age);
    json.at("gone_age").get_to(o.gone_age);
    json.at("steps_done").get_to(o.steps_done);
    json.at("step_age").get_to(o.step_age);
    json.at("wall_seconds").get_to(o.wall_seconds);
    json.at("busy_seconds").get_to(o.busy_seconds);
    json.at("longest_phases").get_to(o.longest_phases);
    json.at("entered").get_to(o.entered);
    return o;
  });
}

ObservedRank observe(const RankState& state, const std::string& node, double now) {
  ObservedRank o;
  o.rank = state.rank;
  o.world = state.world;
  o.pid = state.pid;
  o.node = node;
  o.coordinates = state.coordinates;
  o.step = state.step;
  o.phase = state.phase;
  o.exit_code = state.exit_code;
  o.failure = state.failure;
  o.waits = state.waits;
  if (state.waits) {
    o.waits_group = state.waits_for.group;
    o.waits_number = state.waits_for.number;
    o.waits_verb = state.waits_for.verb;
    o.waits_for = to_string(state.waits_for.name());
    o.waits_age = now - state.waits_since;
  }
  o.phase_age = now - state.phase_since;
  o.progress_age = now - state.last_progress();
  o.steps_done = state.steps_done;
  o.step_age = state.steps_done > 0 ? now - state.step_ended : 0.0;
  o.wall_seconds = state.step_wall_seconds;
  o.busy_seconds = state.step_busy_seconds;
  o.longest_phases = state.longest_phases;
  for (const RecordedOperation& operation : state.operations) {
    int64_t& newest = o.entered[operation.group];
    newest = std::max(newest, operation.number);
  }
  return o;
}

Json NodeReport::to_json() const {
  Json list = Json::array();
  for (const ObservedRank& rank : ranks) list.push_back(rank.to_json());
  Json gpus = Json::array();
  for (const RunStatus::Device& device : devices) gpus.push_back(device.to_json());
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
    const Json& ranks = json.at("ranks");
    if (!ranks.is_array() || ranks.size() > kMaxRanks) {
      throw InputError("cluster",
                       "a node's report has no list of ranks, or one of more "
                       "than 4096");
    }
    for (const Json& rank : ranks) {
      report.ranks.push_back(ObservedRank::from_json(rank));
    }
    const Json& devices = json.at("devices");
    if (!devices.is_array() || devices.size() > kMaxDevices) {
      throw InputError("cluster",
                       "a node's report has no list of devices, or one of more than 256");
    }
    for (const Json& device : devices) {
      report.devices.push_back(RunStatus::Device::from_json(device));
    }
    return report;
  });
}

std::vector<ObservedRank> ranks_of(const std::vector<NodeReport>& reports) {
  std::vector<ObservedRank> ranks;
  for (const NodeReport& report : reports) {
    ranks.insert(ranks.end(), report.ranks.begin(), report.ranks.end());
  }
  std::ranges::sort(ranks, {}, &ObservedRank::rank);
  return ranks;
}

}  // namespace longhaul::cluster
