#include "longhaul/system/memory.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

constexpr const char* kMeminfo =
    "MemTotal:  2000 kB\nMemFree:  100 kB\nMemAvailable:  1000 kB\n";

TEST(AvailableMemory, IsWhatTheKernelSays) {
  const TestDirectory root;
  EXPECT_EQ(available_memory(root.path()), 0u);
  fs::create_directories(root / "proc/self");
  write_file(root / "proc/meminfo", kMeminfo);
  EXPECT_EQ(available_memory(root.path()), 1000u * 1024);
  EXPECT_GT(available_memory(), 0u);
}

TEST(AvailableMemory, IsNoMoreThanTheControlGroupsAllow) {
  const TestDirectory root;
  fs::create_directories(root / "proc/self");
  fs::create_directories(root / "sys/fs/cgroup/job/step");
  write_file(root / "proc/meminfo", kMeminfo);
  write_file(root / "proc/self/cgroup", "0::/job/step\n");
  write_file(root / "sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(available_memory(root.path()), 1000u * 1024);
  write_file(root / "sys/fs/cgroup/job/memory.max", "51200\n");
  EXPECT_EQ(available_memory(root.path()), 51200u);
}

}  // namespace
}  // namespace longhaul::system
