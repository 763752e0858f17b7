#include "longhaul/cluster/record/exclusions.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "longhaul/cluster/names.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
namespace {

constexpr NamesOf<ExclusionKind, 4> kExclusionNames{
    {"person", "health", "silence", "faults"}};

RecordFile excluded_file(const fs::path& path) {
  return {path, "list of excluded nodes",
          "remove it, or write it as a list of {\"node\", \"since\", \"cause\"}"};
}

/// Returns whether no check of the node itself has failed.
bool passes(const HealthReport& report) {
  return std::ranges::none_of(report.checks, [](const HealthCheck& check) {
    return check.has_failed() && !check.of_file_system;
  });
}

using Readmitted = std::set<std::pair<std::string, std::string>>;  // node, kind

}  // namespace

const char* exclusion_name(ExclusionKind kind) { return kExclusionNames.of(kind); }

void from_json(const Json& json, ExcludedNode& node) {
  json.at("node").get_to(node.node);
  json.at("since").get_to(node.since);
  json.at("cause").get_to(node.cause);
  // Only a person ends an exclusion whose kind this version does not know.
  node.kind =
      kExclusionNames.find(json.value("kind", "")).value_or(ExclusionKind::Person);
  node.again = json.value("again", false);
}

void to_json(Json& json, const ExcludedNode& node) {
  json = {{"node", node.node}, {"since", node.since}, {"cause", node.cause}};
  if (node.kind != ExclusionKind::Person) json["kind"] = exclusion_name(node.kind);
  if (node.again) json["again"] = true;
}

std::vector<ExcludedNode> read_excluded(const fs::path& path) {
  return excluded_file(path).read<std::vector<ExcludedNode>>();
}

void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes) {
  excluded_file(path).replace(nodes, 1);
}

bool has_expired(const ExcludedNode& node, double now) {
  // A clock that once was far ahead must not keep a node out for ever.
  return node.kind != ExclusionKind::Person &&
         std::abs(now - node.since) >= kExclusionSeconds;
}

bool may_be_tested(const ExcludedNode& node, double now, Retest retest) {
  if (has_expired(node, now)) return true;
  if (retest == Retest::LastResort) return node.kind != ExclusionKind::Person;
  return !node.again &&
         (node.kind == ExclusionKind::Health || node.kind == ExclusionKind::Silence);
}

Exclusions::Exclusions(const fs::path& run_dir)
    : path_(run_dir / run::kExcludedNodesFile),
      readmitted_file_(run_dir / run::kReadmittedNodesFile, "list of nodes"),
      nodes_(read_excluded(path_)) {}

std::vector<std::string> Exclusions::testable(double now, Retest retest) const {
  std::vector<std::string> names;
  for (const ExcludedNode& node : nodes_) {
    if (may_be_tested(node, now, retest)) names.push_back(node.node);
  }
  return names;
}

void Exclusions::read_again(system::Logger& log) {
  try_record(log, "the nodes that were left out before stay out",
             [&] { nodes_ = read_excluded(path_); });
}

/// Returns true if the record cannot be read, too: otherwise a sick node could be
/// readmitted again and again.
bool Exclusions::was_readmitted(const std::string& node, ExclusionKind kind,
                                system::Logger& log) const {
  bool found = true;
  try_record(
      log, "a node that is left out now stays out until its time has run out", [&] {
        found =
            readmitted_file_.read<Readmitted>().contains({node, exclusion_name(kind)});
      });
  return found;
}

bool Exclusions::add(const std::string& node, ExclusionKind kind,
                     const std::string& cause, double now, system::Logger& log) {
  read_again(log);
  const auto found = std::ranges::find(nodes_, node, &ExcludedNode::node);
  if (found != nodes_.end() && !has_expired(*found, now)) return false;
  std::erase_if(nodes_, [&](const ExcludedNode& one) { return one.node == node; });
  nodes_.push_back({node, now, cause, kind, was_readmitted(node, kind, log)});
  try_record(log, "the node is left out only until the job is requeued",
             [&] { write_excluded(path_, nodes_); });
  return true;
}

std::vector<ExcludedNode> Exclusions::readmit(const std::vector<HealthReport>& reports,
                                              double now, system::Logger& log,
                                              Retest retest) {
  std::vector<ExcludedNode> back;
  for (const ExcludedNode& node : nodes_) {
    const auto passed = [&](const HealthReport& report) {
      return report.node == node.node && passes(report);
    };
    if (may_be_tested(node, now, retest) && std::ranges::any_of(reports, passed)) {
      back.push_back(node);
    }
  }
  if (back.empty()) return back;
  std::vector<ExcludedNode> left = nodes_;
  std::erase_if(left, [&](const ExcludedNode& node) {
    return std::ranges::find(back, node.node, &ExcludedNode::node) != back.end();
  });
  const bool written = try_record(log, "no node is taken back", [&] {
    auto all = readmitted_file_.read<Readmitted>();
    for (const ExcludedNode& node : back) {
      all.emplace(node.node, exclusion_name(node.kind));
    }
    // The file of readmitted nodes is written first, so that no node is readmitted
    // without a record of it.
    readmitted_file_.replace(all);
    write_excluded(path_, left);
  });
  if (!written) return {};
  nodes_ = std::move(left);
  return back;
}

}  // namespace longhaul::cluster
