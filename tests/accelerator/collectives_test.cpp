#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/accelerator/loaded.h"
#include "tests/accelerator/ranks.h"
#include "tests/support/conformance.h"

// Runs the checks that every backend has to pass on the plug-in's operations between
// ranks, for all verbs and dtypes, over host memory.

namespace longhaul::softdev_test {
namespace {

using RankCase = std::tuple<int, comm::Conformance>;
class Collectives : public testing::TestWithParam<RankCase> {};

TEST_P(Collectives, Conform) {
  const auto& [ranks, conformance] = GetParam();
  ::setenv("SOFTDEV_HOST_BUFFERS", "1", 1);
  run_ranks(ranks, [&](comm::DeviceCommunicator& group) { conformance.check(group); });
  ::unsetenv("SOFTDEV_HOST_BUFFERS");
}

INSTANTIATE_TEST_SUITE_P(Threads, Collectives,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::ValuesIn(comm::conformance_checks())),
                         [](const testing::TestParamInfo<RankCase>& tested) {
                           return std::get<1>(tested.param).name + "_" +
                                  std::to_string(std::get<0>(tested.param));
                         });

}  // namespace
}  // namespace longhaul::softdev_test
