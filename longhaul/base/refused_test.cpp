#include "longhaul/base/refused.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

/// Writes a file below `root`, with the directories to it.
void put(const fs::path& root, const std::string& name, const std::string& text) {
  fs::create_directories((root / name).parent_path());
  write_text_atomic(root / name, text);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LimitsReached, NameTheSmallestOfTheControlGroups) {
  const TestDirectory dir;
  put(dir.path(), "proc/self/cgroup", "0::/job/step\n");
  put(dir.path(), "sys/fs/cgroup/pids.max", "max\n");
  put(dir.path(), "sys/fs/cgroup/job/pids.max", "100\n");
  put(dir.path(), "sys/fs/cgroup/job/step/pids.max", "500\n");
  put(dir.path(), "sys/fs/cgroup/job/step/memory.max", "2000000000\n");
  const std::string threads = limits_reached(EAGAIN, dir.path());
  EXPECT_TRUE(says(threads, "sys/fs/cgroup/job/pids.max is 100")) << threads;
  EXPECT_TRUE(says(threads, "step/memory.max is 2.0 GB")) << threads;
  const std::string memory = limits_reached(ENOMEM, dir.path());
  EXPECT_FALSE(says(memory, "pids.max")) << memory;
  EXPECT_TRUE(says(memory, "step/memory.max is 2.0 GB")) << memory;
}

TEST(LimitsReached, VersionOneOfControlGroupsIsReadToo) {
  const TestDirectory dir;
  put(dir.path(), "proc/self/cgroup", "3:pids:/a\n2:memory:/a\n");
  put(dir.path(), "sys/fs/cgroup/pids/a/pids.max", "64\n");
  // Version 1 writes this number for "no limit".
  put(dir.path(), "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
      "9223372036854771712\n");
  const std::string threads = limits_reached(EAGAIN, dir.path());
  EXPECT_TRUE(says(threads, "sys/fs/cgroup/pids/a/pids.max is 64")) << threads;
  EXPECT_FALSE(says(threads, "limit_in_bytes")) << threads;
}

TEST(LimitsReached, MappingsAreNamedWhereTheyAreNearlyUsedUp) {
  const TestDirectory dir;
  put(dir.path(), "proc/self/maps", "a\nb\nc\n");
  put(dir.path(), "proc/sys/vm/max_map_count", "65530\n");
  EXPECT_FALSE(says(limits_reached(ENOMEM, dir.path()), "max_map_count"));
  put(dir.path(), "proc/sys/vm/max_map_count", "3\n");
  EXPECT_TRUE(says(limits_reached(ENOMEM, dir.path()),
                   "/proc/sys/vm/max_map_count is 3, of which 3 are used"));
}

TEST(LimitsReached, AFileHandleThatCannotBeHadNamesTheShellsLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  const std::string message = message_of<TemporaryError>([&] {
    // The limit is taken back before the error is looked at, because sanitizers need
    // files for that.
    const struct Back {
      const rlimit* limit;
      ~Back() { ::setrlimit(RLIMIT_NOFILE, limit); }
    } back{&before};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    File::open_read("/proc/self/status");
  });
  EXPECT_TRUE(says(message, "/proc/self/status: open failed: ")) << message;
  EXPECT_TRUE(says(message, "ulimit -n is 3")) << message;
}

TEST(LimitsReached, OtherFailuresSpeakOfNoLimit) {
  EXPECT_EQ(limits_reached(ENOSPC), "");
  EXPECT_EQ(limits_reached(ENOENT), "");
}

TEST(Refused, SaysWhatWasWantedAndWhatToDo) {
  const std::string text = refused("process", "pipe", EMFILE).what();
  EXPECT_TRUE(says(text,
                   "[process] the system gives this process no pipe: Too many open "
                   "files; the limits are: ulimit -n is "))
      << text;
}

}  // namespace
}  // namespace longhaul
