#pragma once

#include <cstdlib>
#include <functional>

namespace longhaul::apps {

/// One of several processes that a launcher started for a verb that needs no MPI. The
/// processes share files alone.
struct Task {
  int process = 0;
  int processes = 1;
};

/// Reads the variables of a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS) or of mpirun
/// (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE). Without them, and in a batch script,
/// this is the only process. Throws ConfigError for numbers that make no sense.
Task task_of_launch(
    const std::function<const char*(const char*)>& environment = std::getenv);

}  // namespace longhaul::apps
