#include "longhaul/comm/through_host.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/conformance.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::comm {
namespace {

class ThroughHostVerbs : public testing::TestWithParam<Conformance> {};

TEST_P(ThroughHostVerbs, Conform) {
  const DeviceCopies copies = {[](void* host, const ConstBuffer& device) {
                                 std::memcpy(host, device.data, device.bytes());
                               },
                               [](const Buffer& device) {
                                 return [device](const void* host) {
                                   std::memcpy(device.data, host, device.bytes());
                                 };
                               }};
  for (const int ranks : {1, 3}) {
    run_fake_ranks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      GetParam().check(*through_host(*world, copies));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(FakeRanks, ThroughHostVerbs,
                         testing::ValuesIn(conformance_checks()),
                         [](const testing::TestParamInfo<Conformance>& tested) {
                           return tested.param.name;
                         });

TEST(ThroughHost, AResultIsTheDevicesWhenItsWorkIsWaitedFor) {
  run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    // This variable stands for memory of a device, which the collectives of the host
    // never touch.
    int64_t device = world->rank() + 1;
    int to_host = 0;
    int to_device = 0;
    const auto group = through_host(*world, {[&](void* host, const ConstBuffer& from) {
                                               std::memcpy(host, from.data, from.bytes());
                                               ++to_host;
                                             },
                                             [&](const Buffer& to) {
                                               return [&, to](const void* host) {
                                                 std::memcpy(to.data, host, to.bytes());
                                                 ++to_device;
                                               };
                                             }});
    const WorkPtr work =
        group->all_reduce({&device, 1, format::DType::I64}, ReduceOp::Sum);
    EXPECT_EQ(device, world->rank() + 1);
    work->order();
    EXPECT_EQ(device, 3);
    work->wait();  // a second time changes nothing
    EXPECT_EQ(to_host, 1);
    EXPECT_EQ(to_device, 1);
  });
}

}  // namespace
}  // namespace longhaul::comm
