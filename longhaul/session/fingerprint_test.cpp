#include "longhaul/session/fingerprint.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::session {
namespace {

Json fingerprint() {
  return numerics_fingerprint({{"layout", "dp 2"},
                               {"device", "cpu"},
                               {"collectives", "mpi, in rank order"},
                               {"products", "LibTorch"},
                               {"attention", "own"}});
}

TEST(Fingerprint, HoldsWhatDecidesTheLastBits) {
  const Json f = fingerprint();
  EXPECT_EQ(f.at("layout"), "dp 2");
  EXPECT_EQ(f.at("device"), "cpu");
  EXPECT_EQ(f.at("collectives"), "mpi, in rank order");
  EXPECT_EQ(f.at("kernels"), system::isa_name(system::best_isa()));
  EXPECT_EQ(f.at("cpu"), kernels::cpu_name());
  EXPECT_EQ(f.at("products"), "LibTorch");
  EXPECT_EQ(f.at("attention"), "own");
  EXPECT_EQ(f.size(), 11U);
}

TEST(Fingerprint, NamesWhatDiffers) {
  EXPECT_EQ(compare_fingerprints(fingerprint(), fingerprint()).differences, "");
  EXPECT_EQ(compare_fingerprints(fingerprint(), fingerprint()).unknown, "");
  Json elsewhere = fingerprint();
  elsewhere["kernels"] = "AVX-512 BF16 of another machine";
  elsewhere["device"] = "NVIDIA H100 sm_90";
  const auto result = compare_fingerprints(elsewhere, fingerprint());
  EXPECT_EQ(result.differences,
            "device was \"NVIDIA H100 sm_90\", is \"cpu\"; kernels was \"AVX-512 BF16 of "
            "another machine\", is " +
                fingerprint()["kernels"].dump());
  EXPECT_EQ(result.unknown, "");
}

TEST(Fingerprint, OfAnOlderVersionIsUnknownRatherThanDifferent) {
  Json older = fingerprint();
  for (const char* key : {"kernels", "cpu", "library_limits", "device", "collectives"}) {
    older.erase(key);
  }
  const auto alike = compare_fingerprints(older, fingerprint());
  EXPECT_EQ(alike.differences, "");
  EXPECT_EQ(alike.unknown, "collectives, cpu, device, kernels, library_limits");
  older["threads"] = -1;
  EXPECT_NE(compare_fingerprints(older, fingerprint()).differences, "");
}

TEST(Fingerprint, KnowsWhatLimitsTheLibraries) {
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  const Json limited = fingerprint();
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(limited["library_limits"], (Json{{"ONEDNN_MAX_CPU_ISA", "AVX2"}}));
  EXPECT_NE(compare_fingerprints(limited, fingerprint()).differences, "");
}

TEST(Fingerprint, OfSeveralRanksListsWhatTheyDoNotShare) {
  Json other = fingerprint();
  other["cpu"] = "0 another CPU";
  const Json merged = merge_fingerprints({fingerprint(), other, fingerprint()});
  EXPECT_EQ(merged["cpu"], (Json{"0 another CPU", kernels::cpu_name()}));
  EXPECT_EQ(merged["kernels"], fingerprint()["kernels"]);
  EXPECT_EQ(merge_fingerprints({other, fingerprint()}), merged);
}

}  // namespace
}  // namespace longhaul::session
