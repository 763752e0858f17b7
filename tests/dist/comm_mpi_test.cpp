#include <gtest/gtest.h>

#include <tuple>

#include "longhaul/comm/backend.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/comm/mesh.h"
#include "tests/support/conformance.h"

namespace longhaul::comm {
namespace {

using Case = std::tuple<bool, Conformance>;
class Mpi : public testing::TestWithParam<Case> {};

TEST_P(Mpi, Conforms) {
  const auto& [tiny, conformance] = GetParam();
  conformance.check(*world(Backend::Mpi, tiny ? tiny_messages() : CommOptions{}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi,
                         testing::Combine(testing::Bool(),
                                          testing::ValuesIn(conformance_checks())),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::get<1>(tested.param).name +
                                  (std::get<0>(tested.param) ? "_tiny" : "");
                         });

TEST(MpiDeadline, NamesOperationNumberRankAndSeconds) {
  CommOptions options;
  options.deadline_seconds = 0.3;
  const auto group = world(Backend::Mpi, options);
  if (group->size() > 1) check_deadline(*group);
}

TEST(MpiHosts, RanksOfThisMachineFindEachOther) {
  const auto group = world(Backend::Mpi);
  const auto node = split_by_host(*group, "node");
  EXPECT_EQ(node->size(), group->size());
  EXPECT_EQ(node->rank(), group->rank());
}

TEST(MpiMesh, AxesSplitTheWorld) {
  const auto group = world(Backend::Mpi);
  if (group->size() % 2 != 0) return;
  const Mesh mesh(group, {.dp = group->size() / 2, .tp = 2});
  int64_t sum = 1;
  mesh.data().all_reduce_wait({&sum, 1, format::DType::I64}, ReduceOp::Sum);
  mesh.tp().all_reduce_wait({&sum, 1, format::DType::I64}, ReduceOp::Sum);
  EXPECT_EQ(sum, group->size());
}

}  // namespace
}  // namespace longhaul::comm
