#include "longhaul/session/device_fit.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::session {
namespace {

constexpr int64_t kGB = 1'000'000'000;

layout::RankCosts costs_of_70() {
  layout::RankCosts costs;
  costs.state = {16 * kGB, 16 * kGB, 24 * kGB, 14 * kGB};
  costs.activations.in_flight[KeptKind::Attention] = 8 * kGB;
  costs.activations.work = kGB;
  costs.activations.logits = kGB;  // a part of the work space
  return costs;
}

TEST(DeviceFit, WhatFitsIsNotSpokenOf) {
  EXPECT_EQ(check_fit(costs_of_70(), 0, 79 * kGB, 80 * kGB), "");
  EXPECT_NE(check_fit(costs_of_70(), 0, 79 * kGB - 1, 80 * kGB), "");
}

TEST(DeviceFit, StatesThatDoNotFitAreRefusedWithTheBytesByKind) {
  try {
    check_fit(costs_of_70(), 0, 69 * kGB, 80 * kGB);
    FAIL() << "let through";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"weights 16.0 GB, gradients 16.0 GB, master weights 24.0 GB, moments 14.0 GB",
          "79.0 GB in all. The device has 69.0 GB free of 80.0 GB"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(DeviceFit, TooLittleMemoryForNcclsBuffersIsRefused) {
  EXPECT_NE(check_fit(costs_of_70(), 5 * kGB, 75 * kGB, 80 * kGB), "");
  try {
    check_fit(costs_of_70(), 5 * kGB, 75 * kGB - 1, 80 * kGB);
    FAIL() << "let through";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"and 5.0 GB for NCCL's buffers (reckoned, not measured), 84.0 GB in all",
          "a lower NCCL_BUFFSIZE makes NCCL's buffers smaller"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(DeviceFit, PassesThatMayNotFitAreAWarning) {
  const std::string text = check_fit(costs_of_70(), 0, 75 * kGB, 80 * kGB);
  EXPECT_NE(text.find("memory may not suffice"), std::string::npos) << text;
}

}  // namespace
}  // namespace longhaul::session
