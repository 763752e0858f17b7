#include "longhaul/cluster/record/exclusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"

namespace longhaul::cluster {
namespace {

constexpr uint64_t kMostExclusionBytes = uint64_t{1} << 22;
constexpr std::array kExclusionKinds = {ExclusionKind::Person, ExclusionKind::Health,
                                        ExclusionKind::Silence, ExclusionKind::Faults};

/// What another version or a person calls otherwise only a person ends.
ExclusionKind exclusion_kind(const std::string& name) {
  for (const ExclusionKind kind : kExclusionKinds) {
    if (name == exclusion_name(kind)) return kind;
  }
  return ExclusionKind::Person;
}

/// Nothing that is the node's own has failed.
bool passes(const HealthReport& report) {
  return std::ranges::none_of(report.checks, [](const HealthCheck& check) {
    return check.result == HealthResult::Failed && !check.of_file_system;
  });
}

using Readmitted = std::set<std::pair<std::string, std::string>>;  // node, kind

Readmitted read_readmitted(const fs::path& path) {
  if (!fs::exists(path)) return {};
  try {
    return read_json(path, kMostExclusionBytes).get<Readmitted>();
  } catch (const Json::exception& problem) {
    throw InputError("cluster", fmt::format("{}: is no list of nodes ({}); remove it",
                                            path.string(), words_of(problem)));
  }
}

}  // namespace

const char* exclusion_name(ExclusionKind kind) {
  switch (kind) {
    case ExclusionKind::Person:
      return "person";
    case ExclusionKind::Health:
      return "health";
    case ExclusionKind::Silence:
      return "silence";
    case ExclusionKind::Faults:
      return "faults";
  }
  return "person";
}

std::vector<ExcludedNode> read_excluded(const fs::path& path) {
  std::vector<ExcludedNode> nodes;
  if (!fs::exists(path)) return nodes;
  const Json json = read_json(path, kMostExclusionBytes);
  try {
    for (const Json& node : json) {
      nodes.push_back({node.at("node").get<std::string>(), node.at("since").get<double>(),
                       node.at("cause").get<std::string>(),
                       exclusion_kind(node.value("kind", "")),
                       node.value("again", false)});
    }
  } catch (const Json::exception& error) {
    throw InputError("cluster", fmt::format("{}: is no list of excluded nodes ({}); "
                                            "remove it, or write it as a list of "
                                            "{{\"node\", \"since\", \"cause\"}}",
                                            path.string(), words_of(error)));
  }
  return nodes;
}

void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes) {
  Json list = Json::array();
  for (const ExcludedNode& node : nodes) {
    Json entry = {{"node", node.node}, {"since", node.since}, {"cause", node.cause}};
    if (node.kind != ExclusionKind::Person) entry["kind"] = exclusion_name(node.kind);
    if (node.again) entry["again"] = true;
    list.push_back(std::move(entry));
  }
  write_text_atomic(path, json_text(list, 1) + "\n");
}

bool has_expired(const ExcludedNode& node, double now) {
  // A clock that was a day or more ahead must not keep a node out for ever.
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
    : path_(run_dir / kExcludedNodesFile),
      readmitted_path_(run_dir / kReadmittedNodesFile),
      nodes_(read_excluded(path_)) {}

std::vector<std::string> Exclusions::testable(double now, Retest retest) const {
  std::vector<std::string> names;
  for (const ExcludedNode& node : nodes_) {
    if (may_be_tested(node, now, retest)) names.push_back(node.node);
  }
  return names;
}

void Exclusions::read_again(Logger& log) {
  try {
    nodes_ = read_excluded(path_);
  } catch (const Error& problem) {
    log.warning(problem.what());
  }
}

/// A record that cannot be read counts: else a sick node could come and go for ever.
bool Exclusions::was_readmitted(const std::string& node, ExclusionKind kind,
                                Logger& log) const {
  try {
    return read_readmitted(readmitted_path_).contains({node, exclusion_name(kind)});
  } catch (const Error& problem) {
    log.warning(problem.what());
    return true;
  }
}

bool Exclusions::add(const std::string& node, ExclusionKind kind,
                     const std::string& cause, double now, Logger& log) {
  read_again(log);
  const auto same = [&](const ExcludedNode& one) { return one.node == node; };
  const auto found = std::ranges::find_if(nodes_, same);
  if (found != nodes_.end() && !has_expired(*found, now)) return false;
  std::erase_if(nodes_, same);
  nodes_.push_back({node, now, cause, kind, was_readmitted(node, kind, log)});
  try {
    write_excluded(path_, nodes_);
  } catch (const Error& problem) {
    log.warning(problem.what());  // it is left out in this life of the job
  }
  return true;
}

std::vector<ExcludedNode> Exclusions::readmit(const std::vector<HealthReport>& reports,
                                              double now, Logger& log, Retest retest) {
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
  try {
    Readmitted all = read_readmitted(readmitted_path_);
    for (const ExcludedNode& node : back) {
      all.emplace(node.node, exclusion_name(node.kind));
    }
    // First, so that nobody comes and goes without a trace.
    make_directories_durable(readmitted_path_.parent_path());
    write_text_durable(readmitted_path_, json_text(Json(all)));
    write_excluded(path_, left);
  } catch (const Error& problem) {
    log.warning(fmt::format("no node is put in again: {}", problem.what()));
    return {};
  }
  nodes_ = std::move(left);
  return back;
}

}  // namespace longhaul::cluster
