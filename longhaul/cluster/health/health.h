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
  Skipped,  ///< there is nothing to check: "not present"
  Warning,  ///< it works, but not as it could
};
/// Throws InputError for an unknown name.
void from_json(const Json& json, HealthResult& result);
void to_json(Json& json, const HealthResult& result);

/// The result of one health check on one node.
struct HealthCheck {
  std::string name;  ///< "compute", "memory", "disk DIR" ...
  HealthResult result = HealthResult::Ok;
  std::string text;  ///< one line: what was found and, where it failed, what to do
  double seconds = 0.0;
  Json values = Json::object();  ///< figures, for comparing nodes
  /// A failure that every node sees alike: too little room on a file system.
  bool of_file_system = false;

  static HealthCheck failed(std::string text);
  bool has_failed() const { return result == HealthResult::Failed; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HealthCheck, name, result, text, seconds, values,
                                   of_file_system)

/// Returns "NAME: TEXT; NAME: TEXT" of the checks that failed.
std::string describe_failed(const std::vector<HealthCheck>& checks);
/// Returns one line for each check: "ok       memory    ..." or "FAILED   disk /fsx ...".
std::vector<std::string> check_lines(const std::vector<HealthCheck>& checks);

/// What was found on one node.
struct HealthReport {
  std::string node;
  double time = 0.0;  ///< seconds since 1970 by the node's own clock, at the end
  std::vector<HealthCheck> checks;

  /// Returns whether no check has failed.
  bool ok() const;
  /// Returns the failed checks in one line; empty if none failed.
  std::string cause() const { return describe_failed(checks); }
  std::vector<std::string> lines() const { return check_lines(checks); }
  /// Returns the fields of a run's event about this report.
  Json summary() const;
  Json to_json() const;
  /// Throws InputError for anything else than a report: the JSON may come from another
  /// node.
  static HealthReport from_json(const Json& json);
};

/// The file in which HyperPod's agent marks a node as unfit: by a last line other than 0.
inline constexpr const char* kHyperPodUnhealthyFile =
    "/var/run/sagemaker_healthcheck_status";

/// The library of NVIDIA's driver.
inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Where another node of the job is reached.
struct PeerNode {
  std::string node;
  std::string host;  ///< its address
  int port = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PeerNode, node, host, port)

struct HealthOptions {
  bool quick = false;                 ///< takes less than a second instead of a few
  std::vector<fs::path> directories;  ///< in each a file is written, synced and read back
  fs::path unhealthy_file = kHyperPodUnhealthyFile;  ///< empty: none
  std::string command;  ///< [resilience] health_command, run by /bin/sh; empty: none
  double command_seconds = 60.0;
  std::vector<PeerNode>
      peers;  ///< nodes to which this one tries to connect; empty: no check
  /// A check that takes longer has failed.
  double check_seconds = 15.0;
  double min_free_bytes = 1e9;  ///< in each directory
  std::string nvml_library = kNvmlLibrary;
};
// Messages between a supervisor and its agents carry these options. The other options are
// the same everywhere.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HealthOptions, quick, directories, unhealthy_file,
                                   command, command_seconds, peers)

/// Checks this node, without Torch, MPI or another node. Each check runs in a child
/// process with a deadline, so that a hanging file system or a crashing driver gives a
/// result. Run one check_node at a time on a node: it uses all cores. Must not be called
/// in a process whose other threads may hold locks.
HealthReport check_node(const HealthOptions& options);

/// Runs one check in a child process with a deadline. A check that throws has failed with
/// the error's text.
HealthCheck bounded_check(const std::string& name, double deadline_seconds,
                          const std::function<HealthCheck()>& check);

}  // namespace longhaul::cluster
