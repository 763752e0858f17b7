#pragma once

#include <string>

#include "longhaul/cluster/health/health.h"

namespace longhaul::cluster {

/// Returns the report of a node with one check, for tests.
inline HealthReport report_of(const std::string& node, bool ok,
                              bool of_file_system = false) {
  HealthReport report;
  report.node = node;
  HealthCheck check;
  check.name = "memory";
  check.result = ok ? HealthResult::Ok : HealthResult::Failed;
  check.text = node;
  check.of_file_system = of_file_system;
  report.checks.push_back(check);
  return report;
}

}  // namespace longhaul::cluster
