#include "longhaul/base/missing_path.h"

#include <gtest/gtest.h>
#include <pwd.h>

#include <cstdlib>
#include <utility>

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(MissingPath, APlainNameIsOnlySaidToBeMissing) {
  EXPECT_EQ(missing_path("nowhere"), "nowhere: no such file or directory");
}

TEST(MissingPath, ANameOfAHubIsNotFetched) {
  const std::string text = missing_path("meta-llama/Llama-3.2-1B");
  EXPECT_HAS(text, "meta-llama/Llama-3.2-1B: no such file or directory");
  EXPECT_HAS(text, "fetches nothing");
  EXPECT_HAS(text, "docs/offline.md");
  for (const char* other :
       {"/models/Llama", "a/b/c", "./models/Llama", "models/", "a b/c"}) {
    EXPECT_EQ(missing_path(other).find("hub"), std::string::npos) << other;
  }
}

TEST(MissingPath, ALinkToNothingIsCalledThat) {
  const TestDirectory dir;
  fs::create_symlink("../gone", dir / "models");
  const std::string said =
      (dir / "models").string() + ": a link to ../gone, where nothing is";
  EXPECT_EQ(missing_path(dir / "models"), said);
  EXPECT_EQ(dangling_link(dir / "absent"), "");
  fs::create_directory(dir / "there");
  fs::create_symlink("there", dir / "good");
  EXPECT_EQ(dangling_link(dir / "good"), "");
  try {
    read_text(dir / "models");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.message(), said);
  }
}

TEST(MissingPath, AnAddressIsNotFetched) {
  for (const char* address : {"https://huggingface.co/a/b", "hf://a/b"}) {
    EXPECT_HAS(missing_path(address), "reads like an address");
  }
  EXPECT_HAS(missing_path("s3://bucket/models"),
             "s3://bucket/models: it is the address of an object, which has no use here");
}

TEST(MissingPath, AnAddressIsNoPathToWriteTo) {
  for (const char* text : {"hf://a/b", "gs://bucket"}) {
    EXPECT_HAS(as_address(text), "longhaul opens no addresses but those of objects");
  }
  EXPECT_HAS(as_address("s3://bucket/runs"), "it is the address of an object");
  for (const char* plain : {"", "a:/b", "/a://b", "://a", "a/b", "C:/runs", "runs/s3:"}) {
    EXPECT_EQ(as_address(plain), "") << plain;
  }
}

TEST(MissingPath, ADirectoryNamedLikeASchemeMakesAnAddressOfObjectsNoPath) {
  const TestDirectory dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  fs::create_directories("s3:/bucket");
  fs::create_directories("gs:/bucket");
  const std::string of_slashes = as_address("s3://bucket/runs");
  const std::string of_one = as_address("s3:/bucket/runs");
  const std::string of_other = as_address("gs://bucket/runs");
  fs::current_path(before);
  EXPECT_HAS(of_slashes, "it is the address of an object");
  EXPECT_EQ(of_one, of_slashes);
  EXPECT_EQ(of_other, "");
}

TEST(MissingPath, WhatAShellWouldHaveReplacedIsNamed) {
  ::setenv("HOME", "/users/me", 1);
  ::setenv("LONGHAUL_TEST_BASE", "/scratch", 1);
  ::unsetenv("LONGHAUL_TEST_UNSET");
  const std::string root = ::getpwnam("root")->pw_dir;
  const std::pair<const char*, std::string> cases[] = {
      {"~", "write /users/me"},
      {"~/runs/a", "write /users/me/runs/a"},
      {"~root/a", "write " + root + "/a"},
      {"$HOME/runs", "write /users/me/runs"},
      {"${LONGHAUL_TEST_BASE}/x$HOME", "write /scratch/x/users/me"},
      {"/data/$LONGHAUL_TEST_BASE/x", "write /data//scratch/x"},
      {"/data/$LONGHAUL_TEST_UNSET/x",
       "LONGHAUL_TEST_UNSET is not set here: write the whole path"},
  };
  for (const auto& [path, advice] : cases) {
    EXPECT_HAS(unexpanded(path), std::string("takes the path as it stands; ") + advice);
    EXPECT_HAS(missing_path(path), advice);
  }
  for (const char* plain : {"", "a~", "a/~/b", "~no_such_user/a", "a$", "a$/b", "a$1",
                            "${", "${}", "${A", "$(a)", "/a/b"}) {
    EXPECT_EQ(unexpanded(plain), "") << plain;
  }
}

TEST(MissingPath, ANameThatIsReallyWrittenSoIsNoMistake) {
  const TestDirectory dir;
  fs::create_directories(dir / "$LONGHAUL_TEST_BASE");
  EXPECT_EQ(unexpanded(dir / "$LONGHAUL_TEST_BASE/new/run"), "");
  EXPECT_NE(unexpanded(dir / "$LONGHAUL_TEST_BASE/new/$LONGHAUL_TEST_BASE"), "");
}

TEST(MissingPath, ANeighbourOfNearlyThisNameIsMeant) {
  const TestDirectory dir;
  fs::create_directories(dir / "models/small");
  EXPECT_HAS(missing_path(dir / "models/smal"),
             "did you mean " + (dir / "models/small").string() + "?");
  EXPECT_HAS(missing_path(dir / "modles/small"),
             "did you mean " + (dir / "models/small").string() + "?");
  EXPECT_EQ(missing_path(dir / "modles/large").find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
