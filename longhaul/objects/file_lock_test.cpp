#include "longhaul/objects/file_lock.h"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <optional>
#include <utility>

#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

TEST(FileLock, IsHeldByOneUntilThatOneGoes) {
  const TestDirectory dir;
  std::optional<FileLock> first(dir / "a.lock");
  FileLock second(dir / "a.lock");
  EXPECT_TRUE(first->take(LOCK_EX));
  EXPECT_FALSE(second.take(LOCK_EX));
  FileLock moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(second.take(LOCK_SH));
  moved.release();
  EXPECT_TRUE(second.take(LOCK_SH));
  EXPECT_TRUE(moved.take(LOCK_SH));
  EXPECT_FALSE(moved.take(LOCK_EX));
}

TEST(FileLock, WhoseFileWasRemovedIsThatOfTheNewFile) {
  const TestDirectory dir;
  FileLock waiting(dir / "a.lock");
  {
    FileLock removing(dir / "a.lock");
    ASSERT_TRUE(removing.take(LOCK_EX));
    EXPECT_FALSE(waiting.take(LOCK_EX));
    removing.remove();
    EXPECT_FALSE(waiting.take(LOCK_EX));
  }
  FileLock later(dir / "a.lock");
  EXPECT_TRUE(waiting.take(LOCK_EX));
  EXPECT_FALSE(later.take(LOCK_SH));
  EXPECT_TRUE(waiting.take(LOCK_SH));
  EXPECT_TRUE(later.take(LOCK_SH));
}

}  // namespace
}  // namespace longhaul::objects
