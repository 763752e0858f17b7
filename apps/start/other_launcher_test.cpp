#include "apps/start/other_launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

std::string warned(const Variables& variables, const Words& words = {"train", "run.toml"},
                   const comm::Launch& launch = {}) {
  return check_launcher(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      launch, words);
}

std::string refused(const Variables& variables,
                    const Words& words = {"train", "run.toml"}) {
  return message_of<ConfigError>([&] { warned(variables, words); });
}

const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                             {"RANK", "0"},
                             {"LOCAL_RANK", "0"},
                             {"WORLD_SIZE", "8"},
                             {"GROUP_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "8"}};

TEST(OtherLauncher, TorchrunIsRefusedOnEveryRankWithTheCommandToType) {
  EXPECT_EQ(
      refused(kTorchrun),
      "[launch] torchrun started this process (rank 0 of 8): each such process would "
      "be a run of its own, since longhaul's ranks communicate over MPI; type `longhaul "
      "launch "
      "-n 8 run.toml`");
  Variables other = kTorchrun;
  other["RANK"] = "5";
  EXPECT_HAS(refused(other), "(rank 5 of 8)");
  EXPECT_HAS(refused({{"TORCHELASTIC_RUN_ID", "x"}}), "longhaul launch -n 1 run.toml");
}

TEST(OtherLauncher, TheCommandHasTheWordsThatWereTyped) {
  EXPECT_HAS(refused(kTorchrun, {"train", "my run.toml", "--set", "run.dir=\"a'b\""}),
             "`longhaul launch -n 8 'my run.toml' --set 'run.dir=\"a'\\''b\"'`");
  EXPECT_HAS(refused(kTorchrun, {"eval", "m", "--data", "d"}),
             "`mpirun -n 8 longhaul eval m --data d`");
  EXPECT_HAS(refused(kTorchrun, {"launch", "-n", "4", "run.toml"}),
             "`longhaul launch -n 4 run.toml`, once");
}

TEST(OtherLauncher, SeveralMachinesAreNamedAsHosts) {
  Variables several = kTorchrun;
  several["WORLD_SIZE"] = "16";
  several["GROUP_RANK"] = "1";
  EXPECT_HAS(
      refused(several),
      "`longhaul launch -n 16 --ranks-per-node 8 --hosts HOST1,HOST2,... run.toml` "
      "on one machine");
}

TEST(OtherLauncher, SoAreOthersThatStartOneProcessARank) {
  EXPECT_HAS(refused({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}}),
             "a launcher of PyTorch started this process (rank 0 of 2)");
  EXPECT_HAS(refused({{"RANK", "3"}, {"WORLD_SIZE", "4"}}),
             "RANK=3, and no MPI started this process (rank 3 of 4)");
  EXPECT_HAS(refused({{"RANK", "1"}}), "env -u RANK");
}

TEST(OtherLauncher, AWorldSizeAloneIsAWarning) {
  EXPECT_HAS(warned({{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4, which longhaul does not read");
  EXPECT_HAS(warned({{"WORLD_SIZE", "4"}, {"RANK", "0"}}),
             "longhaul launch -n 4 run.toml");
}

TEST(OtherLauncher, AProcessThatSrunDidNotStartIsToldOfTheJobsTasks) {
  EXPECT_HAS(warned({{"SLURM_NTASKS", "2"}}), "Slurm's job has 2 tasks");
  EXPECT_HAS(warned({{"SLURM_NTASKS", "2"}}), "longhaul launch -n 2 run.toml");
  EXPECT_EQ(warned({{"SLURM_NTASKS", "1"}}), "");
  EXPECT_EQ(warned({{"SLURM_NTASKS", "2"}, {"LONGHAUL_SUPERVISOR", "x"}}), "");
  EXPECT_EQ(warned({{"SLURM_NTASKS", "2"}}, {"supervise", "run.toml"}), "");
}

TEST(OtherLauncher, APlainStartOrOneByMpiIsNone) {
  comm::Launch mpi;
  mpi.by_launcher = true;
  EXPECT_EQ(warned(kTorchrun, {"train"}, mpi), "");
  for (const Variables& plain :
       {Variables{}, Variables{{"WORLD_SIZE", "1"}}, Variables{{"RANK", "0"}},
        Variables{{"LOCAL_RANK", "1"}}, Variables{{"RANK", "x"}, {"WORLD_SIZE", ""}},
        Variables{{"MASTER_ADDR", "a"}, {"GROUP_RANK", "1"}}}) {
    EXPECT_EQ(warned(plain), "");
  }
}

}  // namespace
}  // namespace longhaul::apps
