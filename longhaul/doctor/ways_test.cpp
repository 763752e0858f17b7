#include "longhaul/doctor/ways.h"

#include <gtest/gtest.h>

#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthResult;
using World = std::shared_ptr<comm::Communicator>;

constexpr const char* kFast =
    "n0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "n0:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    "n0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Plugged "
    "in/1/GDRDMA\n"
    "n0:1:2 [0] NCCL INFO Channel 02/0 : 8[0] -> 0[0] [receive] via NET/IB/3(7)/Shared\n"
    "n0:1:2 [0] NCCL INFO Channel 00 : 2[2] -> 3[3] via SHM/direct/direct\n"
    "n0:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set via the environment\n";
constexpr const char* kSlow =
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0\n";

TEST(Ways, AreThoseOfConnectionsWithoutTheirNumbers) {
  EXPECT_EQ(ways_in(kFast), (std::set<std::string>{"P2P/CUMEM", "NET/Plugged in/GDRDMA",
                                                   "NET/IB", "SHM"}));
  EXPECT_TRUE(ways_in("").empty());
}

TEST(Ways, SocketsAreAWarningOnlyWhereTheMachineHasMore) {
  comm::run_fake_ranks(3, [](const World& world) {
    const std::string log = world->rank() == 1 ? kSlow : kFast;
    const auto warned = check_ways(*world, log, {"rdmap0s6"});
    EXPECT_EQ(warned.result, HealthResult::Warning);
    EXPECT_HAS(warned.text, "NET/Socket");
    EXPECT_HAS(warned.text, "their machine has rdmap0s6");
    EXPECT_FALSE(warned.has_failed());

    const auto fast = check_ways(*world, kFast, {"rdmap0s6"});
    EXPECT_EQ(fast.result, HealthResult::Ok);
    EXPECT_EQ(fast.text, "NET/IB, NET/Plugged in/GDRDMA, P2P/CUMEM, SHM");
    EXPECT_EQ(check_ways(*world, kSlow, {}).result, HealthResult::Ok);
    EXPECT_EQ(check_ways(*world, "", {}).result, HealthResult::Skipped);
  });
}

TEST(Ways, RdmaDevicesAreTheSystems) {
  const TestDirectory root;
  EXPECT_TRUE(rdma_devices(root.path()).empty());
  for (const char* name : {"mlx5_1", "mlx5_0"}) {
    fs::create_directories(root / "sys/class/infiniband" / name);
  }
  EXPECT_EQ(rdma_devices(root.path()), (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
}

TEST(Numa, ARankThatIsBoundAwayFromItsDeviceIsAWarning) {
  comm::run_fake_ranks(3, [](const World& world) {
    const bool last = world->rank() == 2;
    const auto far = check_numa(*world, {{last ? 0 : 1}, 1});
    EXPECT_EQ(far.result, HealthResult::Warning);
    EXPECT_HAS(far.text, "rank 2: cores of node 0, device at node 1");
    EXPECT_HAS(far.text, "ranks 0,1: cores of node 1, device at node 1");
    EXPECT_HAS(far.text, "no core of rank 2 is at its device's node");

    const auto unbound = check_numa(*world, {{0, 1}, last ? 1 : 0});
    EXPECT_EQ(unbound.result, HealthResult::Ok);
    EXPECT_HAS(unbound.text, "rank 2: cores of node 0,1, device at node 1");
    EXPECT_EQ(check_numa(*world, {{0}, -1}).text,
              "ranks 0,1,2: cores of node 0, device at no known node");
  });
}

}  // namespace
}  // namespace longhaul::doctor
