#include "longhaul/cluster/health/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

namespace longhaul::cluster {
namespace {

constexpr size_t kNamedNodes = 8;

bool is_disk(const HealthCheck& check) { return check.name.starts_with("disk "); }

struct Finding {
  bool of_file_system = false;
  std::vector<std::string> nodes;
  std::string text;  ///< text of the first node's check
};

/// Returns what failures of the same kind have in common. For a directory it is the name
/// alone, because the numbers of a file system change all the time.
std::string kind_of(const HealthCheck& check) {
  return is_disk(check) ? check.name : check.name + ": " + check.text;
}

bool is_shared(const HealthCheck& check, const Finding& finding, size_t asked) {
  if (finding.of_file_system) return true;
  if (finding.nodes.size() < 2) return false;
  return is_disk(check) || 2 * finding.nodes.size() > asked;
}

std::string told(const HealthCheck& check, const Finding& finding) {
  const size_t named = std::min(finding.nodes.size(), kNamedNodes);
  return fmt::format("{}: {} (seen on {}{})", check.name, finding.text,
                     fmt::join(std::span(finding.nodes).first(named), ", "),
                     finding.nodes.size() > named ? ", ..." : "");
}

}  // namespace

Findings judge_health(const std::vector<HealthReport>& reports) {
  std::map<std::string, Finding> all;
  for (const HealthReport& report : reports) {
    for (const HealthCheck& check : report.checks) {
      if (!check.has_failed()) continue;
      Finding& finding = all[kind_of(check)];
      if (finding.nodes.empty()) finding.text = check.text;
      finding.nodes.push_back(report.node);
      if (check.of_file_system) finding.of_file_system = true;
    }
  }
  Findings found;
  for (const HealthReport& report : reports) {
    std::vector<HealthCheck> own;
    for (const HealthCheck& check : report.checks) {
      if (!check.has_failed()) continue;
      const Finding& finding = all[kind_of(check)];
      if (!is_shared(check, finding, reports.size())) {
        own.push_back(check);
      } else if (finding.nodes.front() == report.node) {
        found.shared.push_back(told(check, finding));
      }
    }
    if (!own.empty()) found.sick.push_back({report.node, describe_failed(own)});
  }
  return found;
}

}  // namespace longhaul::cluster
