#include "longhaul/device/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"

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
                  .find("8 ranks on this machine, of which each sees "
                        "4 devices"),
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

}  // namespace
}  // namespace longhaul::device
