#include "apps/tasks.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"

namespace longhaul::apps {
namespace {

int number(const char* name, const char* text) {
  const auto value = whole_number<int>(text);
  if (!value || *value < 0) {
    fail_config("data",
                "the environment says {}={}, which is no process number; start longhaul "
                "with srun, with mpirun, or alone",
                name, text);
  }
  return *value;
}

}  // namespace

Task task_of_launch(const std::function<const char*(const char*)>& environment) {
  struct Names {
    const char* process;
    const char* processes;
    const char* launched;  // without this variable no launcher started the process
  };
  constexpr Names kNames[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
  };
  for (const Names& names : kNames) {
    const char* const process = environment(names.process);
    const char* const processes = environment(names.processes);
    if (process == nullptr || processes == nullptr ||
        environment(names.launched) == nullptr) {
      continue;
    }
    const Task task = {number(names.process, process),
                       number(names.processes, processes)};
    if (task.process >= task.processes) {
      fail_config("data",
                  "the environment says {}={} of {}={}; start longhaul with srun, with "
                  "mpirun, or alone",
                  names.process, process, names.processes, processes);
    }
    return task;
  }
  return {};
}

}  // namespace longhaul::apps
