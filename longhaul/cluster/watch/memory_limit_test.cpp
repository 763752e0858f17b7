#include "longhaul/cluster/watch/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

/// A made up /proc and /sys with the cgroups of process 7.
class MadeUpCgroups {
 public:
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_ / name).parent_path());
    write_text_durable(dir_ / name, text);
  }
  MemoryLimit look() const { return MemoryLimit(7, dir_.path()); }

 private:
  TestDirectory dir_;
};

TEST(MemoryLimit, OfV2CountsTheKillsSinceItWasLookedAt) {
  const MadeUpCgroups made;
  made.put("proc/7/cgroup", "0::/job/step\n");
  made.put("sys/fs/cgroup/job/step/memory.events", "low 0\noom 9\noom_kill 3\n");
  made.put("sys/fs/cgroup/job/step/memory.max", "max\n");
  made.put("sys/fs/cgroup/job/memory.max", "8589934592\n");
  const MemoryLimit limit = made.look();
  EXPECT_EQ(limit.kills(), 0);
  EXPECT_EQ(limit.bytes(), 8589934592);
  made.put("sys/fs/cgroup/job/step/memory.events", "low 0\noom 9\noom_kill 5\n");
  EXPECT_EQ(limit.kills(), 2);
}

TEST(MemoryLimit, OfV1StandsWithItsOwnWords) {
  const MadeUpCgroups made;
  made.put("proc/7/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n0::/\n");
  made.put("sys/fs/cgroup/memory/job/memory.oom_control",
           "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  made.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  made.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryLimit limit = made.look();
  EXPECT_EQ(limit.bytes(), 1073741824);
  made.put("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill 4\n");
  EXPECT_EQ(limit.kills(), 3);
}

TEST(MemoryLimit, InAContainerTheMountIsTheGroup) {
  const MadeUpCgroups made;
  made.put("proc/7/cgroup", "4:memory:/docker/0123\n");
  made.put("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 0\n");
  made.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(made.look().bytes(), 4096);
}

TEST(MemoryLimit, WhereNothingIsKnownNothingIsCounted) {
  const MadeUpCgroups made;
  EXPECT_EQ(made.look().kills(), 0);
  EXPECT_EQ(made.look().bytes(), std::nullopt);
  EXPECT_EQ(MemoryLimit(::getpid()).kills(), 0);
}

}  // namespace
}  // namespace longhaul::cluster
