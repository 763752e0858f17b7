#include "longhaul/drill/drilled_fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "longhaul/base/error.h"
#include "longhaul/cluster/names.h"

namespace longhaul::drill {

const char* drill_fault_name(DrillFault fault) {
  constexpr cluster::NamesOf<DrillFault, 8> kNames{
      {"kill-worker", "kill-workers", "stop-worker", "kill-node", "mark-unhealthy",
       "kill-supervisor", "terminate", "damage-checkpoint"}};
  return kNames.of(fault);
}

DrillFault drill_fault_of(const std::string& name, const std::vector<DrillFault>& among) {
  std::vector<std::string> names;
  for (const DrillFault fault : among) {
    if (name == drill_fault_name(fault)) return fault;
    names.emplace_back(drill_fault_name(fault));
  }
  fail_input("drill", "there is no fault '{}' here; the faults are {}", name,
             fmt::join(names, ", "));
}

std::vector<DrillFault> faults_of_one_machine() {
  return {DrillFault::KillWorker, DrillFault::KillWorkers,
          DrillFault::StopWorker, DrillFault::KillSupervisor,
          DrillFault::Terminate,  DrillFault::DamageCheckpoint};
}

std::vector<DrillFault> faults_of_nodes(bool with_spares) {
  std::vector<DrillFault> faults = faults_of_one_machine();
  faults.push_back(DrillFault::KillNode);
  // MarkUnhealthy takes a node away. Without a spare the job would go back to the queue.
  if (with_spares) faults.push_back(DrillFault::MarkUnhealthy);
  return faults;
}

std::vector<DrillFault> faults_of_live_runs() {
  return {DrillFault::KillWorker, DrillFault::StopWorker, DrillFault::KillNode,
          DrillFault::MarkUnhealthy};
}

}  // namespace longhaul::drill
