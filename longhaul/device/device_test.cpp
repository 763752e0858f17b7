#include "longhaul/device/device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/device/cuda_library.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::device {
namespace {

TEST(DeviceOrdinal, IsTheRanksPlaceWhereItSeesTheDevicesOfAll) {
  EXPECT_EQ(ordinal(0, 1, 8), 0);
  EXPECT_EQ(ordinal(3, 8, 8), 3);
  EXPECT_EQ(ordinal(3, 4, 8), 3);
}

TEST(DeviceOrdinal, IsTheFirstWhereEachRankSeesOnlyItsOwn) {
  EXPECT_EQ(ordinal(0, 8, 1), 0);
  EXPECT_EQ(ordinal(7, 8, 1), 0);
}

TEST(DeviceOrdinal, MoreRanksThanDevicesAreRefused) {
  try {
    ordinal(1, 8, 4);
    FAIL() << "chosen";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("8 ranks on this machine, and each rank sees 4 devices"),
              std::string::npos);
  }
}

TEST(DeviceChoice, OfOneThatIsAbsentSaysWhatToDo) {
  const auto alone = comm::self_world();
  EXPECT_TRUE(choose("cpu", *alone).is_cpu());
  for (const char* wanted : {"cuda", "plugin"}) {
    if (at::hasCUDA()) GTEST_SKIP() << "a device is there";
    try {
      choose(wanted, *alone);
      FAIL() << "chosen";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("run.device = \"") + wanted),
                std::string::npos);
    }
  }
}

TEST(CudaLibrary, ThatIsAbsentOrNoneSaysSo) {
  const CudaLibrary absent = open_cuda_library({});
  EXPECT_EQ(absent.kind, nullptr);
  EXPECT_EQ(absent.obstacle, "there is no liblonghaul_cuda.so beside the program");

  const TestDirectory folder;
  const fs::path path = folder / "liblonghaul_cuda.so";
  write_file(path, "no library");
  const CudaLibrary broken = open_cuda_library(path);
  EXPECT_EQ(broken.kind, nullptr);
  EXPECT_NE(broken.obstacle.find(path.string() + " cannot be loaded ("),
            std::string::npos)
      << broken.obstacle;
}

TEST(CudaLibrary, OfAnotherVersionIsRefused) {
  Dl_info info{};
  ASSERT_NE(
      ::dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&::cos)), &info),
      0);
  const CudaLibrary other = open_cuda_library(fs::canonical(info.dli_fname));
  EXPECT_EQ(other.kind, nullptr);
  EXPECT_NE(other.obstacle.find("lacks the function longhaul_cuda_kind"),
            std::string::npos)
      << other.obstacle;
}

}  // namespace
}  // namespace longhaul::device
