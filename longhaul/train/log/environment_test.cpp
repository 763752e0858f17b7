#include "longhaul/train/log/environment.h"

#include <cstdlib>

#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

TEST(LoggedEnvironment, NamesWhatChangesARun) {
  for (const char* name :
       {"OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID",
        "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_btl", "FI_PROVIDER", "MALLOC_ARENA_MAX",
        "GLIBC_TUNABLES", "LD_PRELOAD", "LONGHAUL_RECORD_DIR",
        "TORCH_SHOW_CPP_STACKTRACES"}) {
    EXPECT_TRUE(is_logged_variable(name)) << name;
  }
}

TEST(LoggedEnvironment, NeverNamesASecretOrWhatDoesNotConcernARun) {
  for (const char* name :
       {"SLURM_JWT", "NCCL_API_KEY", "TORCH_HUB_TOKEN", "LONGHAUL_PASSWORD",
        "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "HOME", "PATH", "PS1", "SSH_AUTH_SOCK",
        "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_hnp_uri", ""}) {
    EXPECT_FALSE(is_logged_variable(name)) << name;
  }
}

TEST(LoggedEnvironment, IsSortedInOneLineEachAndNotEndless) {
  ::setenv("LONGHAUL_TEST_B", "two\nlines\x1b[31m", 1);
  ::setenv("LONGHAUL_TEST_A", std::string(5000, 'a').c_str(), 1);
  ::setenv("LONGHAUL_TEST_TOKEN", "hidden", 1);
  std::vector<std::pair<std::string, std::string>> ours;
  for (const auto& one : logged_environment()) {
    if (one.first.starts_with("LONGHAUL_TEST_")) ours.push_back(one);
  }
  for (const char* name : {"LONGHAUL_TEST_A", "LONGHAUL_TEST_B", "LONGHAUL_TEST_TOKEN"}) {
    ::unsetenv(name);
  }
  ASSERT_EQ(ours.size(), 2U);
  EXPECT_EQ(ours[0].second.size(), 1000U);
  EXPECT_EQ(ours[1],
            std::pair(std::string("LONGHAUL_TEST_B"), std::string("two lines [31m")));
}

}  // namespace
}  // namespace longhaul::train
