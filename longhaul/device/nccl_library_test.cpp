#include "longhaul/device/nccl_library.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

// The libraries of tests/nccl lie beside this program.

namespace longhaul::device {
namespace {

using Sentences = std::vector<std::string>;

TEST(NcclLibrary, OfEachVersionSaysWhatItLacksAndHasNoSuchFunction) {
  const std::string scalable =
      "has no ncclCommInitRankScalable (since 2.23): a group's ranks meet at one address";
  const std::string memory =
      "has no ncclCommMemStats (since 2.29): NCCL's memory is reckoned, not asked for";
  struct Case {
    const char* file;
    int version;
    Sentences lacks;
  };
  const std::vector<Case> cases = {
      {"./libfake_nccl_21400.so",
       21400,
       {"NCCL 2.14.0 " + scalable, "NCCL 2.14.0 " + memory}},
      {"./libfake_nccl_22005.so",
       22005,
       {"NCCL 2.20.5 " + scalable, "NCCL 2.20.5 " + memory}},
      {"./libfake_nccl_22300.so", 22300, {"NCCL 2.23.0 " + memory}},
      {"./libfake_nccl_22605.so", 22605, {"NCCL 2.26.5 " + memory}},
      {"./libfake_nccl_22900.so", 22900, {}},
      {"./libfake_nccl_23100.so", 23100, {}}};
  for (const Case& one : cases) {
    const NcclLibrary library(one.file);
    EXPECT_EQ(library.version(), one.version);
    EXPECT_EQ(library.lacks(), one.lacks) << one.file;
    int (*const call)() = library.find("ncclCommInitRankScalable");
    EXPECT_EQ(call == nullptr, one.version < 22300) << one.file;
  }
}

TEST(NcclLibrary, ThatIsTooOldOrOfAnotherMajorVersionIsRefused) {
  EXPECT_HAS(message_of<ConfigError>([] { NcclLibrary("./libfake_nccl_21306.so"); }),
             "is NCCL 2.13.6; this program needs NCCL 2, at least 2.14.0");
  EXPECT_HAS(message_of<ConfigError>([] { NcclLibrary("./libfake_nccl_30000.so"); }),
             "is NCCL 3.0.0; this program needs NCCL 2");
}

TEST(NcclLibrary, ThatIsAbsentOrLacksWhatAllHaveSaysWhatToInstall) {
  EXPECT_HAS(message_of<ConfigError>([] { NcclLibrary("./libfake_nccl.so"); }),
             "install NCCL, or put its directory into LD_LIBRARY_PATH");
  const NcclLibrary library("./libfake_nccl_23100.so");
  EXPECT_HAS(message_of<ConfigError>([&] { library.get("ncclAllReduce"); }),
             "lacks the function ncclAllReduce; install a newer NCCL");
}

}  // namespace
}  // namespace longhaul::device
