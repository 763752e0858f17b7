#include "longhaul/system/cpus.h"

#include <sched.h>

#include <cmath>

#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

CpuAllowance on(std::vector<int> cpus) { return {std::move(cpus)}; }

TEST(Cpus, AreThoseOfTheProcessesCpuSet) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const int last = allowed_cpus().back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(last), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(allowed_cpus(), std::vector<int>{last});
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Cpus, ShareOfProcessesThatMayUseAll) {
  const std::vector<CpuAllowance> two(2, on({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(share_of_cpus(two, 0), 4);
  const std::vector<CpuAllowance> three(3, on({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(share_of_cpus(three, 2), 2);
  const std::vector<CpuAllowance> many(8, on({0, 1}));
  EXPECT_EQ(share_of_cpus(many, 5), 1);
}

TEST(Cpus, ShareOfProcessesThatAreBoundIsWhatTheyAreBoundTo) {
  EXPECT_EQ(share_of_cpus({on({0, 1, 2}), on({3, 4, 5})}, 1), 3);
  // The ranks are bound to overlapping sets. Each has 2 CPUs of its own, and 2 that both
  // share.
  EXPECT_EQ(share_of_cpus({on({0, 1, 2, 3}), on({2, 3, 4, 5})}, 0), 3);
}

TEST(Cpus, AQuotaIsSharedByTheProcesses) {
  CpuAllowance limited = on({0, 1, 2, 3, 4, 5, 6, 7});
  limited.quota = 5.0;
  EXPECT_EQ(share_of_cpus({limited}, 0), 5);
  EXPECT_EQ(share_of_cpus({limited, limited}, 1), 2);
  limited.quota = 0.5;
  EXPECT_EQ(share_of_cpus({limited}, 0), 1);
}

TEST(Cpus, AllowanceSurvivesItsText) {
  CpuAllowance allowance = on({0, 3, 70});
  EXPECT_EQ(CpuAllowance::from_text(allowance.to_text()).cpus, allowance.cpus);
  EXPECT_TRUE(std::isinf(CpuAllowance::from_text(allowance.to_text()).quota));
  allowance.quota = 2.5;
  EXPECT_EQ(CpuAllowance::from_text(allowance.to_text()).quota, 2.5);
}

/// Writes a file below `root`, with the directories to it.
void place(const fs::path& root, const std::string& name, const std::string& text) {
  fs::create_directories((root / name).parent_path());
  write_file(root / name, text);
}

TEST(Cpus, QuotaIsTheSmallestOfAGroupAndThoseAroundIt) {
  const TestDirectory root;
  place(root.path(), "proc/self/cgroup", "0::/job/step\n");
  EXPECT_TRUE(std::isinf(cpu_quota(root.path())));
  place(root.path(), "sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(cpu_quota(root.path())));
  place(root.path(), "sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 2.5);
  place(root.path(), "sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 1.0);
}

TEST(Cpus, QuotaOfVersionOneOfControlGroups) {
  const TestDirectory root;
  place(root.path(), "proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n");
  place(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  place(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_TRUE(std::isinf(cpu_quota(root.path())));
  place(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpu_quota(root.path()), 3.0);
}

TEST(Cpus, NumaNodesAreThoseOfTheCpusAndOfThePciDevice) {
  const TestDirectory root;
  EXPECT_TRUE(numa_nodes({0, 1}, root.path()).empty());
  for (const char* cpu : {"node0/cpu0", "node0/cpu1", "node1/cpu2", "node1/cpu3"}) {
    fs::create_directories(root / "sys/devices/system/node" / cpu);
  }
  EXPECT_EQ(numa_nodes({3, 2}, root.path()), std::vector<int>{1});
  EXPECT_EQ(numa_nodes({1, 2}, root.path()), (std::vector<int>{0, 1}));

  place(root.path(), "sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
  EXPECT_EQ(numa_node_of("0000:1B:00.0", root.path()), 1);
  EXPECT_EQ(numa_node_of("0000:1c:00.0", root.path()), -1);
  EXPECT_EQ(numa_node_of("", root.path()), -1);
}

}  // namespace
}  // namespace longhaul::system
