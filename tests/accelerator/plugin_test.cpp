#include "longhaul/device/plugin.h"

#include <ATen/ops/mm.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "longhaul/base/error.h"
#include "longhaul/comm/backend.h"
#include "longhaul/device/device.h"
#include "tests/accelerator/loaded.h"
#include "tests/support/scratch_directory.h"

// Checks the errors for plug-ins that do not work. Each test runs in a process of its
// own, because registrations of a library stay.

namespace longhaul::softdev_test {
namespace {

/// Loads a plug-in as a run does, prints the outcome to stderr, and ends the process.
[[noreturn]] void load_and_end(const std::string& path) {
  try {
    device::load_plugin(path);
    device::check_plugin_operations(/*fallbacks_count=*/false);
    device::check(device::choose("plugin", *comm::self_world()));
    fmt::print(stderr, "loaded\n");
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::_Exit(error.exit_code());
  }
  std::_Exit(0);
}

class PluginDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  TestDirectory dir_;
};

TEST_F(PluginDeathTest, OfTheTestsIsTaken) {
  EXPECT_EXIT(load_and_end(LONGHAUL_SOFTWARE_ACCELERATOR), testing::ExitedWithCode(0),
              "loaded");
}

TEST_F(PluginDeathTest, WithoutAFile) {
  EXPECT_EXIT(load_and_end("/nowhere/liby.so"), testing::ExitedWithCode(78),
              "device. run.device_plugin = \"/nowhere/liby.so\": .*no such file");
}

TEST_F(PluginDeathTest, ThatIsNoLibrary) {
  const std::string path = (dir_ / "notes.so").string();
  std::ofstream(path) << "text";
  EXPECT_EXIT(load_and_end(path), testing::ExitedWithCode(78),
              "notes.so\": the file is not a shared library .an ELF file.; name the .so");
  EXPECT_EXIT(load_and_end(dir_.path().string()), testing::ExitedWithCode(78),
              "the file is not a shared library");
}

TEST_F(PluginDeathTest, ThatIsCutShort) {
  const std::string path = (dir_ / "short.so").string();
  std::ifstream whole(LONGHAUL_SOFTWARE_ACCELERATOR, std::ios::binary);
  std::vector<char> head(4096);
  whole.read(head.data(), static_cast<std::streamsize>(head.size()));
  std::ofstream(path, std::ios::binary).write(head.data(), 4096);
  EXPECT_EXIT(load_and_end(path), testing::ExitedWithCode(78),
              "short.so\": the library is cut short: it has 4096 bytes, but needs");
}

TEST_F(PluginDeathTest, ThatRegistersNothing) {
  EXPECT_EXIT(
      load_and_end(LONGHAUL_EMPTY_PLUGIN), testing::ExitedWithCode(78),
      "was loaded, but registers no device: it needs c10::register_privateuse1_backend");
}

TEST_F(PluginDeathTest, ThatFindsNoDevice) {
  const auto load = [] {
    ::setenv("SOFTDEV_COUNT", "0", 1);
    load_and_end(LONGHAUL_SOFTWARE_ACCELERATOR);
  };
  EXPECT_EXIT(
      load(), testing::ExitedWithCode(78),
      "it brings the device type 'softdev', but finds no such device on this machine");
}

TEST_F(PluginDeathTest, WithoutOperationsNamesThemAndWhoNeedsThem) {
  EXPECT_EXIT(load_and_end(LONGHAUL_BARE_PLUGIN), testing::ExitedWithCode(78),
              "device 'bare' lacks operations: aten::empty.memory_format .train, eval, "
              "generate.; .*aten::native_layer_norm_backward .train.; aten::mm.out "
              ".train, eval, generate.; .*register these operations, or set "
              "run.device_fallback = \"warn\"");
}

TEST_F(PluginDeathTest, WithSomeOperationsIsNotToldOfThose) {
  const auto missing = [] {
    try {
      device::load_plugin(LONGHAUL_BARE_PLUGIN);
      device::check_plugin_operations(/*fallbacks_count=*/false);
    } catch (const Error& error) {
      const bool named =
          std::string(error.what()).find("aten::fill_") != std::string::npos;
      std::_Exit(named ? 1 : 0);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(missing(), testing::ExitedWithCode(0), "");
}

TEST_F(PluginDeathTest, AFallbackDoesForAnOperationOnlyWhereItIsAllowed) {
  const auto load = [](bool fallbacks_count) {
    ::setenv("SOFTDEV_WITHOUT", "aten::mm,aten::silu", 1);
    try {
      device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
      device::check_plugin_operations(fallbacks_count);
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      std::_Exit(error.exit_code());
    }
    const at::Device there(at::kPrivateUse1, 0);
    device::take(there);
    const at::Tensor x = at::ones({2, 2}, there);
    (void)at::mm(x, x).add(x);
    const auto first = device::plugin_fallbacks();
    const auto second = device::plugin_fallbacks();
    fmt::print(stderr, "{}; {}\n", fmt::join(first, ", "), second.size());
    std::_Exit(0);
  };
  EXPECT_EXIT(load(false), testing::ExitedWithCode(78),
              "lacks operations: aten::silu.out .*aten::mm.out");
  EXPECT_EXIT(load(true), testing::ExitedWithCode(0), "^aten::mm; 0\n$");
}

void load_without(const char* functions) {
  ::setenv("SOFTDEV_LACKS", functions, 1);
  load_and_end(LONGHAUL_SOFTWARE_ACCELERATOR);
}

TEST_F(PluginDeathTest, WithoutAFunctionThatEveryRunUsesIsToldWhich) {
  for (const char* function :
       {"record", "queryEvent", "block", "synchronizeEvent", "getPinnedMemoryAllocator",
        "getStreamNativeHandle", "hasPrimaryContext"}) {
    EXPECT_EXIT(load_without(function), testing::ExitedWithCode(78),
                std::string("device 'softdev' lacks functions: ") + function +
                    " of the .*" + "; implement them");
  }
  EXPECT_EXIT(load_without("queryEvent,getPinnedMemoryAllocator"),
              testing::ExitedWithCode(78), "queryEvent.*; getPinnedMemoryAllocator");
}

TEST_F(PluginDeathTest, WithoutFunctionsThatNoRunUsesIsTaken) {
  EXPECT_EXIT(
      load_without("getMemoryInfo,getStreamFromGlobalPool,elapsedTime,isPinnedPtr,"
                   "getDefaultGenerator,getNewGenerator,getDeviceFromPtr,isBuilt,"
                   "isAvailable"),
      testing::ExitedWithCode(0), "loaded");
}

TEST_F(PluginDeathTest, WithoutANameHasOneHere) {
  const auto load = [] {
    ::setenv("SOFTDEV_LACKS", "name", 1);
    device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
    fmt::print(stderr, "{}\n", at::Device(at::kPrivateUse1, 0).str());
    std::_Exit(0);
  };
  EXPECT_EXIT(load(), testing::ExitedWithCode(0), "plugin:0");
}

TEST_F(PluginDeathTest, WithAPartOfADeviceIsToldWhichIsMissing) {
  EXPECT_EXIT(load_without("hooks"), testing::ExitedWithCode(78),
              "registers only a part of a device: it lacks hooks "
              ".at::RegisterPrivateUse1HooksInterface.");
}

TEST_F(PluginDeathTest, WhatTellsNoMemoryHasUnknownMemory) {
  const auto ask = [] {
    ::setenv("SOFTDEV_LACKS", "getMemoryInfo", 1);
    device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
    std::_Exit(device::memory(at::Device(at::kPrivateUse1, 0)) ? 1 : 0);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(0), "");
}

TEST_F(PluginDeathTest, ASettingThatNeedsMoreOfADeviceNamesTheFunction) {
  const auto check = [](void (*needs)(at::Device, const std::string&)) {
    ::setenv("SOFTDEV_LACKS", "getStreamFromGlobalPool,elapsedTime", 1);
    device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
    try {
      needs(at::Device(at::kPrivateUse1, 0), "a.setting");
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      std::_Exit(error.exit_code());
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(check(device::check_side_streams), testing::ExitedWithCode(78),
              "a.setting needs getStreamFromGlobalPool of the guard of the device "
              "'softdev', but this function fails: ");
  EXPECT_EXIT(check(device::check_timing), testing::ExitedWithCode(78),
              "a.setting needs elapsedTime of the guard");
}

TEST_F(PluginDeathTest, BesideAnotherIsRefused) {
  const auto load = [] {
    device::load_plugin(LONGHAUL_SOFTWARE_ACCELERATOR);
    device::load_plugin(
        LONGHAUL_SOFTWARE_ACCELERATOR);  // loading the same file again does nothing
    load_and_end(LONGHAUL_EMPTY_PLUGIN);
  };
  EXPECT_EXIT(load(), testing::ExitedWithCode(78),
              "liblonghaul_software_accelerator.so is loaded already");
}

}  // namespace
}  // namespace longhaul::softdev_test
