#pragma once

#include <functional>

namespace longhaul::apps {

/// One of several processes that a launcher started for a verb that needs no MPI: what
/// they share lies on the disk.
struct Task {
  int process = 0;
  int processes = 1;
};

/// From the variables of a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS) or of mpirun
/// (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE); alone where there are none. A batch
/// script itself is alone. ConfigError for numbers that make no sense.
Task task_of_launch(const std::function<const char*(const char*)>& environment);
Task task_of_launch();

}  // namespace longhaul::apps
