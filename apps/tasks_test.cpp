#include "apps/tasks.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "longhaul/base/error.h"

namespace longhaul::apps {
namespace {

Task launched(const std::map<std::string, std::string>& environment) {
  return task_of_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Tasks, AreThoseOfSrunOrMpirun) {
  const Task srun = launched(
      {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(srun.process, 3);
  EXPECT_EQ(srun.processes, 8);
  const Task mpirun =
      launched({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(mpirun.process, 1);
  EXPECT_EQ(mpirun.processes, 2);
}

TEST(Tasks, ABatchScriptAndAPlainStartAreAlone) {
  EXPECT_EQ(launched({}).processes, 1);
  EXPECT_EQ(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).processes, 1);
}

TEST(Tasks, MpirunInsideASlurmStepCounts) {
  const Task task = launched({{"SLURM_PROCID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_STEP_ID", "0"},
                              {"OMPI_COMM_WORLD_RANK", "5"},
                              {"OMPI_COMM_WORLD_SIZE", "6"}});
  EXPECT_EQ(task.process, 5);
}

TEST(Tasks, NumbersThatMakeNoSenseAreRefused) {
  EXPECT_THROW(launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
               ConfigError);
  EXPECT_THROW(launched({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "x"}}),
               ConfigError);
}

}  // namespace
}  // namespace longhaul::apps
