#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/objects/local_copy.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

/// A user without a home.
class DefaultCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("HOME");
  }
  const fs::path own_ = "/tmp/longhaul-" + std::to_string(::geteuid());
};

TEST_F(DefaultCacheTest, IsTheUsersOwnWhereThereIsAHome) {
  ::setenv("HOME", "/a/home", 1);
  EXPECT_EQ(default_cache(), "/a/home/.cache/longhaul/objects");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(default_cache(), "/cache/longhaul/objects");
}

TEST_F(DefaultCacheTest, IsADirectoryIntoWhichOnlyTheUserWritesWhereThereIsNone) {
  EXPECT_EQ(default_cache(), own_ / "longhaul/objects");
  ASSERT_EQ(::chmod(own_.c_str(), 0777), 0);
  EXPECT_HAS(message_of<InputError>([] { default_cache(); }), "no copy there can be");
  ASSERT_EQ(::chmod(own_.c_str(), 0700), 0);
  EXPECT_EQ(default_cache(), own_ / "longhaul/objects");
}

}  // namespace
}  // namespace longhaul::objects
