#include "longhaul/base/missing_path.h"

#include <gtest/gtest.h>

#include "longhaul/base/test_files.h"

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
  for (const char* address :
       {"https://huggingface.co/a/b", "s3://bucket/models", "hf://a/b"}) {
    EXPECT_HAS(missing_path(address), "reads like an address");
  }
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
