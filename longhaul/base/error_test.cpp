#include "longhaul/base/error.h"

#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(Error, KindDecidesTheExitCode) {
  EXPECT_EQ(ConfigError("run", "x").exit_code(), 78);
  EXPECT_EQ(InputError("file", "x").exit_code(), 78);
  EXPECT_EQ(TemporaryError("signal", "x").exit_code(), 75);
  EXPECT_EQ(Error(ErrorKind::Internal, "train", "x").exit_code(), 1);
}

TEST(Error, MessageOpensWithTheArea) {
  const InputError error("data", "wiki.jsonl: empty");
  EXPECT_STREQ(error.what(), "[data] wiki.jsonl: empty");
  EXPECT_EQ(error.area(), "data");
  EXPECT_EQ(error.kind(), ErrorKind::Input);
}

TEST(Error, CheckSaysAreaAndValues) {
  const auto check = [](int have, int want) {
    LH_CHECK(have == want, "shape", "have {}, want {}", have, want);
  };
  EXPECT_NO_THROW(check(3, 3));
  EXPECT_EQ(message_of<Error>([&] { check(2, 3); }), "[shape] have 2, want 3");
}

TEST(Error, AssertNamesPlaceAndCondition) {
  const std::string message =
      message_of<Error>([] { LH_ASSERT(1 + 1 == 3, "sum {}", 2); });
  EXPECT_HAS(message, "[bug] ");
  EXPECT_HAS(message, "error_test.cpp:");
  EXPECT_HAS(message, "1 + 1 == 3 does not hold: sum 2");
}

}  // namespace
}  // namespace longhaul
