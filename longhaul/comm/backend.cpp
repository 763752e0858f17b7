#include "longhaul/comm/backend.h"

#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/comm/mpi.h"
#include "longhaul/comm/staged.h"

namespace longhaul::comm {
namespace {

using Environment = std::function<const char*(const char*)>;

int number(const Environment& environment, const char* name, int absent) {
  const char* text = environment(name);
  if (text == nullptr) return absent;
  const auto value = whole_number<int>(text);
  if (!value || *value < 0) {
    fail_config("comm",
                "environment variable {}={} is not a count; the launcher of this process "
                "sets it, so check how the process is started",
                name, text);
  }
  return *value;
}

}  // namespace

Launch detect_launch(const Environment& environment) {
  Launch launch;
  const auto set = [&](const char* name) { return environment(name) != nullptr; };
  if (set("OMPI_COMM_WORLD_SIZE")) {
    launch.by_launcher = true;
    launch.by_mpirun = true;
    launch.ranks = number(environment, "OMPI_COMM_WORLD_SIZE", 0);
    launch.local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK", 0);
    launch.local_ranks = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    return launch;
  }
  const int step_tasks = number(environment, "SLURM_STEP_NUM_TASKS", 0);
  if (set("PMIX_RANK") || set("PMI_RANK")) {
    launch.by_launcher = true;
    launch.ranks = number(environment, "PMI_SIZE", step_tasks);
    launch.local_rank = number(environment, "SLURM_LOCALID", 0);
    return launch;
  }
  // A batch script has SLURM_PROCID too, but no step: a process that it starts is alone.
  if (step_tasks > 1 && set("SLURM_STEP_ID") && set("SLURM_PROCID")) {
    fail_config("comm",
                "srun started {} tasks without PMIx, so each task would be a run of its "
                "own; use srun --mpi=pmix",
                step_tasks);
  }
  return launch;
}

Launch detect_launch() {
  return detect_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::shared_ptr<Communicator> world(Backend backend, const CommOptions& options) {
  if (backend == Backend::Auto) {
    backend = detect_launch().several() ? Backend::Mpi : Backend::Self;
  }
  if (backend == Backend::Self) return self_world("world", options);
  return std::make_shared<StagedCommunicator>(mpi_world_transport(), "world", options);
}

void finish(Communicator& world) {
  world.barrier_wait();
  mpi_finish();
}

std::string describe_sums(const Communicator& world) {
  return world.size() == 1 ? "one rank" : "mpi, in rank order";
}

}  // namespace longhaul::comm
