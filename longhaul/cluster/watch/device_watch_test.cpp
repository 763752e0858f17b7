#include "longhaul/cluster/watch/device_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "longhaul/base/process.h"
#include "longhaul/cluster/watch/node_watch.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kOtherFakeNvml = "./libfake_nvml.so";  // in the build's folder

class Devices : public ::testing::Test {
 protected:
  ~Devices() override { ::unsetenv("FAKE_NVML"); }
  static void say(const char* words) { ::setenv("FAKE_NVML", words, 1); }

  /// Looks until there are devices, or, with `some` false, until there are no devices any
  /// more.
  static std::vector<run::RunStatus::Device> wait_for(DeviceWatch& watch, bool some,
                                                      double seconds = 10.0) {
    const double end = unix_time() + seconds;
    while (unix_time() < end && watch.look().empty() == some) ::usleep(10'000);
    return watch.look();
  }
};

TEST_F(Devices, AreToldWithMemoryAndUtilisation) {
  say("");
  DeviceWatch watch(kOtherFakeNvml);
  const auto devices = wait_for(watch, true);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].name, "1 Fake H100");
  EXPECT_EQ(devices[1].memory_used_bytes, 1'000'000'000);
  EXPECT_EQ(devices[1].memory_total_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(devices[1].busy, 0.25);
}

TEST_F(Devices, WhatADeviceDoesNotSayIsLeftOut) {
  say("no utilization, lost");
  DeviceWatch watch(kOtherFakeNvml);
  const auto devices = wait_for(watch, true);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_LT(devices[0].busy, 0.0);
  EXPECT_EQ(devices[1].name, "1 lost");
  EXPECT_EQ(devices[1].memory_total_bytes, 0);
}

TEST_F(Devices, WithoutLibraryDriverOrNameThereAreNone) {
  say("no driver");
  for (const char* library : {kOtherFakeNvml, "./no_such_library.so", ""}) {
    DeviceWatch watch(library);
    ::usleep(100'000);
    EXPECT_TRUE(watch.look().empty()) << library;
  }
}

TEST_F(Devices, ALibraryThatCrashesCostsTheFiguresAlone) {
  say("dies later");
  DeviceWatch watch(kOtherFakeNvml);
  EXPECT_EQ(wait_for(watch, true).size(), 2U);
  EXPECT_TRUE(wait_for(watch, false).empty());
}

TEST_F(Devices, ALibraryThatHangsHoldsNobodyUp) {
  say("hang later");
  const double before = unix_time();
  {
    DeviceWatch watch(kOtherFakeNvml);
    EXPECT_EQ(wait_for(watch, true).size(), 2U);
    ::usleep(1'100'000);
    watch.look();
  }
  EXPECT_LT(unix_time() - before, 5.0);
}

TEST_F(Devices, StandInTheReportOfTheirNode) {
  say("");
  NodeWatch watch("n1", "/nowhere", kOtherFakeNvml);
  NodeReport report = watch.report();
  for (int i = 0; i < 500 && report.devices.empty(); ++i) {
    ::usleep(10'000);
    report = watch.report();
  }
  ASSERT_EQ(report.devices.size(), 2U);
  EXPECT_EQ(report.devices[0].memory_used_bytes, 1'000'000'000);
  EXPECT_GT(report.memory_total_bytes, report.memory_used_bytes);
  EXPECT_EQ(NodeReport::from_json(report.to_json()).to_json(), report.to_json());
}

}  // namespace
}  // namespace longhaul::cluster
