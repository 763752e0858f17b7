#include "longhaul/cluster/record/status_file.h"

#include <unistd.h>

#include <algorithm>

#include "longhaul/base/clock.h"
#include "longhaul/base/process.h"

namespace longhaul::cluster {
namespace {

run::RunStatus::Rank of_rank(const ObservedRank& rank) {
  return {rank.rank,
          rank.node,
          rank.pid,
          rank.place ? to_string(*rank.place) : "",
          rank.phase,
          rank.step,
          rank.busy_seconds,
          rank.wall_seconds,
          rank.waits ? rank.waits_for : "",
          rank.waits ? rank.waits_age : 0.0,
          process_state_name(rank.process)};
}

}  // namespace

void take_reports(run::RunStatus& status, const NodeReports& reports,
                  const std::vector<ExcludedNode>& excluded) {
  status.nodes.clear();
  status.ranks.clear();
  const auto is_out = [&](const std::string& name) {
    return std::ranges::any_of(
        excluded, [&](const ExcludedNode& node) { return node.node == name; });
  };
  const bool some_train = std::ranges::any_of(
      reports, [](const auto& report) { return !report->ranks.empty(); });
  for (const auto& newest : reports) {
    const NodeReport& report = *newest;
    run::RunStatus::Node node;
    node.name = report.node;
    node.state = is_out(report.node)                  ? run::RunStatus::Node::kExcluded
                 : some_train && report.ranks.empty() ? run::RunStatus::Node::kSpare
                                                      : run::RunStatus::Node::kUp;
    node.memory_used_bytes = report.memory_used_bytes;
    node.memory_total_bytes = report.memory_total_bytes;
    node.cpu_busy = report.cpu_busy;
    node.devices = report.devices;
    for (const ObservedRank& rank : report.ranks) {
      node.ranks.push_back(rank.rank);
      status.ranks.push_back(of_rank(rank));
    }
    status.nodes.push_back(std::move(node));
  }
  for (const ExcludedNode& out : excluded) {
    const auto same = [&](const auto& report) { return report->node == out.node; };
    if (std::ranges::any_of(reports, same)) continue;
    run::RunStatus::Node node;
    node.name = out.node;
    node.state = run::RunStatus::Node::kExcluded;
    status.nodes.push_back(std::move(node));
  }
  status.updated = system_time();
  status.host = host_name();
  status.process = ::getpid();
}

void write_status(const fs::path& path, const run::RunStatus& status) {
  const fs::path fresh = path.string() + ".new";
  File file = File::create(fresh);
  file.write(json_text(status.to_json()) + "\n");
  file.close();
  fs::rename(fresh, path);
}

}  // namespace longhaul::cluster
