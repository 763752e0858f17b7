#include "longhaul/device/device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/device/cuda_library.h"
#include "longhaul/device/neuron_library.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::device {
namespace {

using Identities = std::vector<std::string>;

/// Returns what ranks see first whose devices do not say who they are.
Identities unknown(size_t ranks) { return Identities(ranks); }

TEST(DeviceOrdinal, IsTheRanksPlaceWhereItSeesTheDevicesOfAll) {
  EXPECT_EQ(ordinal(0, 8, unknown(1)), 0);
  EXPECT_EQ(ordinal(3, 8, unknown(8)), 3);
  EXPECT_EQ(ordinal(3, 8, unknown(4)), 3);
  EXPECT_EQ(ordinal(3, 8, Identities(4, "UUID a")), 3);
}

TEST(DeviceOrdinal, IsTheFirstWhereEachRankSeesOnlyItsOwn) {
  EXPECT_EQ(ordinal(0, 1, unknown(8)), 0);
  EXPECT_EQ(ordinal(7, 1, unknown(8)), 0);
  EXPECT_EQ(ordinal(1, 1, {"UUID a", "UUID b"}), 0);
}

TEST(DeviceOrdinal, IsTheFirstWhereEachRanksListBeginsWithAnotherDevice) {
  // Rank 0 has CUDA_VISIBLE_DEVICES=0,1,2,3, rank 1 has 1,2,3,0, and so on.
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ordinal(rank, 4, {"a", "b", "c", "d"}), 0);
  // Each of two ranks sees two GPUs of its own.
  EXPECT_EQ(ordinal(1, 2, {"a", "c"}), 0);
  // Ranks 0 and 1 see the same first, so that they take the devices of their places.
  EXPECT_EQ(ordinal(1, 3, {"a", "a", "b"}), 1);
  EXPECT_EQ(ordinal(1, 2, {"", "b"}), 1);
}

TEST(DeviceOrdinal, MoreRanksThanDevicesAreRefused) {
  for (const Identities& firsts : {unknown(8), Identities(8, "UUID a")}) {
    EXPECT_HAS(message_of<ConfigError>([&] { ordinal(1, 4, firsts); }),
               "8 ranks on this machine, and each rank sees 4 devices");
  }
}

TEST(DevicesOfRanks, ThatAreOneDeviceOrSliceAreRefused) {
  EXPECT_NO_THROW(check_distinct({"UUID a", "UUID b"}));
  EXPECT_NO_THROW(check_distinct(unknown(3)));
  EXPECT_HAS(
      message_of<ConfigError>([] { check_distinct({"UUID b", "UUID a", "UUID b"}); }),
      "ranks 0 and 2 of this machine have the same device or MIG slice (UUID b); "
      "start one rank per device");
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

TEST(NeuronLibrary, ThatIsAbsentWhereAutoMeansItNamesTheCpuAsAWayOut) {
  const auto alone = comm::self_world();
  const TestDirectory folder;
  const fs::path driver = folder / "neuron0";
  RunSection run;
  ASSERT_EQ(run.device, "auto");
  EXPECT_EQ(load_neuron_for(run, *alone, *alone, driver), nullptr);
  write_file(driver, "");
  // The test has no liblonghaul_neuron.so beside it.
  const std::string said =
      message_of<ConfigError>([&] { load_neuron_for(run, *alone, *alone, driver); });
  EXPECT_HAS(said, "set run.device = \"cpu\"");
  EXPECT_HAS(said, driver.string());
  run.device = "neuron";
  EXPECT_EQ(message_of<ConfigError>([&] {
              load_neuron_for(run, *alone, *alone, driver);
            }).find("\"cpu\""),
            std::string::npos);
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
