#include "longhaul/objects/copy_paths.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

TEST(CopyPaths, StandAsAddressesInWhatPeopleRead) {
  const TestDirectory dir;
  fs::create_directories(dir / "real/ID/content/run");
  fs::create_directory_symlink(dir / "real", dir / "link");
  const fs::path path = dir / "link/ID/content/run";
  CopyPaths paths;
  EXPECT_EQ(paths.with_addresses(path.string()), path.string());
  paths.note(path, {"bucket", "some/run"});
  EXPECT_EQ(
      paths.with_addresses("[hf] " + path.string() + "/config.json: no such file; see " +
                           path.string()),
      "[hf] s3://bucket/some/run/config.json: no such file; see s3://bucket/some/run");
  EXPECT_EQ(paths.with_addresses(fs::canonical(path).string() + ": is damaged"),
            "s3://bucket/some/run: is damaged");
  EXPECT_EQ(paths.with_addresses((dir / "link").string()), (dir / "link").string());
}

}  // namespace
}  // namespace longhaul::objects
