#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/inputs/checked_run.h"
#include "apps/inputs/looked_data.h"
#include "longhaul/base/json.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/plan/device_memory.h"
#include "longhaul/plan/run_outlook.h"
#include "longhaul/plan/step_estimate.h"

namespace longhaul::apps {

/// Seconds from a failure until training goes on: the published run of docs/planning.md
/// took 173 s more for its first step after a restart.
inline constexpr double kRestartSeconds = 180.0;

/// The cluster that a run is planned on.
struct PlannedOn {
  std::string name;  ///< as the user has named the machine
  HardwareProfile profile;
  int64_t ranks = 0;
  int64_t nodes = 0;
  int64_t node_ranks = 0;
  double restart_s = kRestartSeconds;
  std::vector<double> failure_hours = {};  ///< mean node hours between failures
  int64_t spares = 0;
  std::optional<double> replace_s = {};   ///< see plan::NodeFailures
  std::optional<LookedData> looked = {};  ///< absent: the store was not asked
  double imbalance = 1.0;  ///< see plan::device_memory; 1: of even loads alone
};

/// Returns what a plan says if a model has experts and the machine has no rate of their
/// products.
std::optional<std::string> note_on_experts(const ModelConfig& model,
                                           const plan::Machine& machine);

/// Everything that is told of a planned run. `run` has a model.
struct PlannedFigures {
  /// Throws ConfigError for a layout that train refuses, and for a machine without the
  /// rates and links that the run needs.
  PlannedFigures(const CheckedRun& checked, const PlannedOn& planned_on);

  const CheckedRun& run;
  const PlannedOn& on;
  AskedLayout asked;
  plan::Machine machine;
  plan::StepEstimate step;
  int64_t steps = 0;                       ///< 0: run.epochs, which depends on the data
  std::vector<plan::DeviceMemory> memory;  ///< by stage
  std::vector<plan::DeviceMemory> uneven;  ///< at the imbalance; empty if that is 1
  plan::HostMemory host;
  plan::SaveTimes saves;
  std::optional<double> free_disk;  ///< bytes at run.dir, where a part of it is here
  std::vector<plan::FailureOutlook> failures;
  std::vector<std::string> not_checked;

  plan::Cluster cluster() const;
};

void print_plan(const PlannedFigures& planned);
OrderedJson plan_json(const PlannedFigures& planned);

}  // namespace longhaul::apps
