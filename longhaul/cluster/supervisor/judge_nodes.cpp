// Finds the nodes that are fit for a start, and the nodes that are at fault.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/cluster/health/findings.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/supervisor/supervisor_members.h"

namespace longhaul::cluster {
namespace {

constexpr double kHealthSeconds = 120.0;

}  // namespace

/// Blames the node of a process that died if a health check finds it sick: the platform
/// that replaces nodes has to hear of it.
void Supervisor::blame_sick_node(Fault& fault) {
  if (fault.node.empty() || fault.kind == FaultKind::Settings) return;
  for (const SickNode& sick : check_health({fault.node})) {
    fault.kind = FaultKind::Node;
    fault.text += fmt::format("; {} is sick: {}", sick.node, sick.cause);
  }
}

/// Compares what the nodes see of what the run needs. Leaves out the nodes that lack
/// something, and returns what was found. Throws CutFromRun if this node lacks the run's
/// directory.
Findings Supervisor::compare_paths() {
  if (options.needed.empty()) return {};
  const std::string run_dir =
      fs::absolute(options.run_dir).lexically_normal().string() + " (";
  Findings found = judge_paths(options.needed, fleet.view_paths(options.needed));
  tell_findings(found);
  for (const SickNode& sick : found.sick) {
    const bool cut = sick.node == options.here && sick.cause.starts_with(run_dir);
    if (!cut) {
      exclude(sick.node, ExclusionKind::Health, sick.cause);
      continue;
    }
    const std::string text = fmt::format(
        "{}, the supervisor's own node, lacks the run: {}", sick.node, sick.cause);
    if (sick.seen_otherwise && !lock.is_gone()) {
      // This supervisor began on a node that does not hold the run. If no other node can
      // take its work, the job is requeued, so that the batch script gets another node.
      if (options.may_move) throw RunElsewhere(text);
      exclude(sick.node, ExclusionKind::Health, sick.cause);
      throw TemporaryError("nodes", text);
    }
    throw CutFromRun(text + "; another node takes over");
  }
  return found;
}

/// Blames the node that lacks what the others have, or that some of them do not reach.
/// The rank that tells of it first need not be on that node. Returns whether the health
/// of all nodes was checked on the way.
bool Supervisor::blame_lacking_node(Fault& fault) {
  if (fault.kind == FaultKind::Node) return false;
  std::set<std::string> known;
  for (const ExcludedNode& node : exclusions.nodes()) known.insert(node.node);
  // A rank that waits for others knows only one end of a connection. A rank that did not
  // begin knows neither end.
  const bool waited = fault.kind == FaultKind::Hang ||
                      fault.kind == FaultKind::Launcher ||
                      fault.kind == FaultKind::Communication;
  Findings found;
  if (waited) {
    found.sick = check_health({});
  } else {
    found = compare_paths();
  }
  // If most nodes cannot write a path, the node whose rank failed first is not at fault.
  fault.of_node = fault.of_node && found.shared.empty();
  // The fault's own node comes first, then nodes of this start, then spares. If no rank
  // left a record, no node counts as one of this start.
  const auto rank_of = [&](const SickNode& sick) {
    return sick.node == fault.node ? 0 : used_nodes.contains(sick.node) ? 1 : 2;
  };
  const SickNode* guilty = nullptr;
  for (const SickNode& sick : found.sick) {
    if (known.contains(sick.node)) continue;
    if (guilty == nullptr || rank_of(sick) < rank_of(*guilty)) guilty = &sick;
  }
  if (guilty == nullptr) return waited;
  fault.text =
      fmt::format("{}: {} (noticed by: {})", guilty->node, guilty->cause, fault.text);
  if (fault.node != guilty->node) fault.rank = -1;
  fault.node = guilty->node;
  fault.kind = FaultKind::Node;
  fault.temporary = false;
  return waited;
}

void Supervisor::tell_findings(const Findings& found) {
  for (const std::string& finding : found.shared) {
    log.warning("a problem of the job, not of one node: " + finding);
    event(run::kSharedFindingEvent, {{"cause", finding}});
  }
}

/// Returns the health of these nodes, or of all, with the connections between nodes
/// judged (judge_peers). A connection is lost if a second look, some seconds later, finds
/// it lost too. `shared` receives the problems of the network.
std::vector<HealthReport> Supervisor::take_health(const std::vector<std::string>& nodes,
                                                  std::vector<std::string>& shared) {
  std::set<std::string> out;
  for (const ExcludedNode& node : exclusions.nodes()) out.insert(node.node);
  const auto look = [&] {
    auto told = fleet.check_health(nodes, options.health, kHealthSeconds);
    shared = judge_peers(told, out, options.here);
    return told;
  };
  const auto has_lost_ways = [&](const HealthReport& report) {
    return !out.contains(report.node) &&
           std::ranges::any_of(report.checks, [](const HealthCheck& check) {
             return check.name == kPeersCheck && check.has_failed();
           });
  };
  std::vector<HealthReport> first = look();
  if (std::ranges::none_of(first, has_lost_ways)) return first;
  pause(options.second_look_seconds);
  return look();
}

/// Checks these nodes, or all nodes; leaves out the sick nodes and returns them. A
/// problem of the whole job is told once and leaves no node out.
std::vector<SickNode> Supervisor::check_health(const std::vector<std::string>& nodes,
                                               Retest retest) {
  std::vector<std::string> of_network;
  std::vector<HealthReport> checked = take_health(nodes, of_network);
  std::vector<Json> of_nodes;
  for (const HealthReport& report : checked) of_nodes.push_back(report.summary());
  events(run::kHealthEvent, std::move(of_nodes));
  Findings found = judge_health(checked);
  found.shared.insert(found.shared.end(), of_network.begin(), of_network.end());
  tell_findings(found);
  for (const SickNode& sick : found.sick) {
    exclude(sick.node, ExclusionKind::Health, sick.cause);
  }
  const Findings lacking = compare_paths();
  for (const SickNode& sick : lacking.sick) {
    const auto report = std::ranges::find(checked, sick.node, &HealthReport::node);
    if (report == checked.end()) continue;
    report->checks.push_back(HealthCheck::failed(sick.cause));
    report->checks.back().name = "paths";
    if (std::ranges::find(found.sick, sick.node, &SickNode::node) == found.sick.end())
      found.sick.push_back(sick);
  }
  for (const ExcludedNode& node : exclusions.readmit(checked, unix_time(), log, retest)) {
    log.info(
        "{} is used again: a health check passes{}; it was left out for {}", node.node,
        retest == Retest::LastResort ? ", and the queue has given no other node" : "",
        node.cause);
    event(run::kNodeReadmittedEvent, {{"node", node.node},
                                      {"kind", exclusion_name(node.kind)},
                                      {"since", node.since},
                                      {"cause", node.cause}});
  }
  return std::move(found.sick);
}

}  // namespace longhaul::cluster
