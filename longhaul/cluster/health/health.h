#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::cluster {

enum class HealthResult {
  Ok,
  Failed,
  Skipped,  ///< nothing to check: "not present"
};

struct HealthCheck {
  std::string name;  ///< "compute", "memory", "disk DIR" ...
  HealthResult result = HealthResult::Ok;
  std::string text;  ///< one line: what was found and, where it failed, what to do
  double seconds = 0.0;
  Json values = Json::object();  ///< figures, for comparing nodes
  /// Failed for what every node sees alike: the room on a file system.
  bool of_file_system = false;
};

/// What was found on one node.
struct HealthReport {
  std::string node;
  double time = 0.0;  ///< seconds since 1970 by the node's own clock, at the end
  std::vector<HealthCheck> checks;

  /// No check has failed.
  bool ok() const;
  /// The failed checks in one line; empty where there are none.
  std::string cause() const;
  /// One line a check: "ok       memory    ..." or "FAILED   disk /fsx   ...".
  std::vector<std::string> lines() const;
  /// What a run's event says of it.
  Json summary() const;
  Json to_json() const;
  /// InputError for what is no report: it may come from another node.
  static HealthReport from_json(const Json& json);
};

/// HyperPod's agent marks a node here: a last line other than 0.
inline constexpr const char* kHyperPodUnhealthyFile =
    "/var/run/sagemaker_healthcheck_status";

/// NVIDIA's, which comes with the driver.
inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

struct HealthOptions {
  bool quick = false;                 ///< under a second, else a few
  std::vector<fs::path> directories;  ///< written to, synced, read back, removed
  fs::path unhealthy_file = kHyperPodUnhealthyFile;  ///< empty: none
  std::string command;  ///< [resilience] health_command, by /bin/sh; empty: none
  double command_seconds = 60.0;
  /// Any one check that hangs longer than this has failed.
  double check_seconds = 15.0;
  double min_free_bytes = 1e9;  ///< of each directory
  std::string nvml_library = kNvmlLibrary;
};

/// Checks this node; needs no Torch, no MPI and no other node. Each check runs in a child
/// process with a deadline, so that a hanging file system or a crashing driver is a
/// result. Run one at a time per node: all cores are used. Not from a process with other
/// threads that may hold locks.
HealthReport check_node(const HealthOptions& options);

/// Runs one check in a child process with a deadline; a check that throws has failed with
/// the error's text.
HealthCheck bounded_check(const std::string& name, double deadline_seconds,
                          const std::function<HealthCheck()>& check);

}  // namespace longhaul::cluster
