#include "longhaul/cluster/run_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"

namespace longhaul::cluster {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 22;

Json of_rank(const ObservedRank& rank) {
  return {{"rank", rank.rank},
          {"node", rank.node},
          {"pid", rank.pid},
          {"coordinates", rank.coordinates},
          {"phase", rank.phase},
          {"step", rank.step},
          {"busy_seconds", rank.busy_seconds},
          {"wall_seconds", rank.wall_seconds},
          {"waits_for", rank.waits ? rank.waits_for : ""},
          {"waits_seconds", rank.waits ? rank.waits_age : 0.0},
          {"process", process_state_name(rank.process)}};
}

}  // namespace

Json RunStatus::to_json(const std::vector<NodeReport>& reports) const {
  Json nodes = Json::array();
  Json ranks = Json::array();
  for (const NodeReport& report : reports) {
    Json here = Json::array();
    for (const ObservedRank& rank : report.ranks) {
      here.push_back(rank.rank);
      ranks.push_back(of_rank(rank));
    }
    nodes.push_back({{"name", report.node},
                     {"state", "up"},
                     {"ranks", std::move(here)},
                     {"memory_used_bytes", report.memory_used_bytes},
                     {"memory_total_bytes", report.memory_total_bytes},
                     {"cpu_busy", report.cpu_busy},
                     {"devices", Json::array()}});
  }
  const auto add = [&](const std::vector<std::string>& names, const char* word) {
    for (const std::string& name : names) {
      nodes.push_back({{"name", name}, {"state", word}, {"ranks", Json::array()}});
    }
  };
  add(spares, "spare");
  add(excluded, "excluded");
  add(lost, "lost");
  return {{"state", state},           {"since", since},
          {"updated", unix_time()},   {"job", job},
          {"host", host_name()},      {"pid", ::getpid()},
          {"restarts", restarts},     {"max_restarts", max_restarts},
          {"cause", cause},           {"nodes", std::move(nodes)},
          {"ranks", std::move(ranks)}};
}

void write_status(const fs::path& path, const Json& status) {
  const fs::path fresh = path.string() + ".new";
  File file = File::create(fresh);
  file.write(status.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  file.close();
  fs::rename(fresh, path);
}

std::vector<ExcludedNode> read_excluded(const fs::path& path) {
  std::vector<ExcludedNode> nodes;
  if (!fs::exists(path)) return nodes;
  const Json json = read_json(path, kMostBytes);
  try {
    for (const Json& node : json) {
      nodes.push_back({node.at("node").get<std::string>(), node.at("since").get<double>(),
                       node.at("cause").get<std::string>()});
    }
  } catch (const Json::exception& error) {
    throw InputError("cluster", fmt::format("{}: is no list of excluded nodes ({}); "
                                            "remove it, or write it as a list of "
                                            "{{\"node\", \"since\", \"cause\"}}",
                                            path.string(), error.what()));
  }
  return nodes;
}

void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes) {
  Json list = Json::array();
  for (const ExcludedNode& node : nodes) {
    list.push_back({{"node", node.node}, {"since", node.since}, {"cause", node.cause}});
  }
  write_text_atomic(path, list.dump(1) + "\n");
}

}  // namespace longhaul::cluster
