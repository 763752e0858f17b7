#include "longhaul/plan/run_outlook.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/settings.h"

namespace longhaul::plan {
namespace {

constexpr double kStepSeconds = 30.0;

/// A run with 100 bytes of state a rank, on nodes of eight ranks.
class Example {
 public:
  explicit Example(const std::string& device, std::vector<std::string> sets = {})
      : config_(accepted("", std::move(sets)).config) {
    profile.device = device;
    profile.node.disk_bytes_per_s = 100.0;
    profile.node.copy_bytes_per_s = 50.0;
    profile.node.store_bytes_per_s = 20.0;
    machine_.node_ranks = 8;
    machine_.memory = 40.0;
  }

  Cluster on(int64_t ranks) const {
    return {config_, profile,         machine_,
            ranks,   (ranks + 7) / 8, 100.0 * static_cast<double>(ranks)};
  }
  FailureOutlook outlook() const { return outlook(on(12), {}).value(); }
  std::optional<FailureOutlook> outlook(const Cluster& cluster,
                                        std::optional<double> replace_s,
                                        int64_t steps = 1000) const {
    return failure_outlook(cluster, {10.0, 60.0, replace_s}, kStepSeconds, steps);
  }

  HardwareProfile profile;

 private:
  RunConfig config_;
  Machine machine_;
};

TEST(FailureOutlook, HasTheBestIntervalOfALongRunWhereStepsAreNotKnown) {
  const Example example("some GPU", {"checkpoint.every=500"});
  const FailureOutlook unknown = example.outlook(example.on(12), {}, 0).value();
  const FailureOutlook known = example.outlook(example.on(12), {}, 1'000'000).value();
  EXPECT_GT(unknown.best_steps, 1);
  EXPECT_EQ(unknown.best_steps, known.best_steps);
  EXPECT_EQ(unknown.best_goodput, known.best_goodput);
}

TEST(HostMemory, IsThatOfTheNodeWithMostRanks) {
  const Example gpu("some GPU", {"resilience.peer_memory_every=5"});
  // Eight ranks are on the first of two nodes, and four on the second.
  const HostMemory uneven = host_memory(gpu.on(12), 10.0);
  EXPECT_DOUBLE_EQ(uneven.ranks, 0.0);
  EXPECT_DOUBLE_EQ(uneven.saves, 800.0);
  EXPECT_DOUBLE_EQ(uneven.peers, 2.0 * (800.0 + 400.0) + 800.0);
  // With a third node the first one is a full node's neighbour.
  EXPECT_DOUBLE_EQ(host_memory(gpu.on(20), 10.0).peers, 4.0 * 800.0 + 800.0);
  EXPECT_DOUBLE_EQ(host_memory(gpu.on(16), 10.0).peers, 4.0 * 800.0 + 800.0);
  EXPECT_DOUBLE_EQ(host_memory(gpu.on(3), 10.0).peers, 2.0 * 300.0 + 300.0);
}

TEST(HostMemory, OfACpuHasWhatItsRanksHold) {
  const Example cpu("cpu", {"checkpoint.async=false"});
  const HostMemory memory = host_memory(cpu.on(12), 10.0);
  EXPECT_DOUBLE_EQ(memory.ranks, 80.0);
  EXPECT_DOUBLE_EQ(memory.saves, 0.0);
  EXPECT_DOUBLE_EQ(memory.peers, 0.0);
}

TEST(SaveTimes, AreThoseOfTheNodeWithMostRanks) {
  Example gpu("some GPU");
  const SaveTimes times = save_times(gpu.on(12));
  EXPECT_DOUBLE_EQ(times.write.value(), 8.0);
  EXPECT_DOUBLE_EQ(times.read.value(), 8.0);
  EXPECT_DOUBLE_EQ(times.stall.value(), 2.0);
  EXPECT_FALSE(times.waits);
  EXPECT_DOUBLE_EQ(times.mirror.value(), 40.0);
  // A CPU's copy reads and writes.
  EXPECT_DOUBLE_EQ(save_times(Example("cpu").on(12)).stall.value(), 5.0);
  gpu.profile.node.disk_bytes_per_s = 0.0;
  EXPECT_FALSE(save_times(gpu.on(12)).write.has_value());
}

TEST(SaveTimes, HoldTrainingUpForTheWholeSaveWhereNothingCopies) {
  Example gpu("some GPU");
  gpu.profile.node.copy_bytes_per_s = 0.0;
  for (const Example& one : {gpu, Example("some GPU", {"checkpoint.async=false"})}) {
    EXPECT_DOUBLE_EQ(save_times(one.on(12)).stall.value(), 8.0);
    EXPECT_TRUE(save_times(one.on(12)).waits);
  }
}

TEST(FailureOutlook, CountsAWriteOnce) {
  const std::vector<std::string> often = {"checkpoint.every=10"};
  Example gpu("some GPU", often);
  const FailureOutlook beside = gpu.outlook();
  EXPECT_DOUBLE_EQ(beside.costs.between_s, 10.0 * 3600.0 / 2.0);
  EXPECT_DOUBLE_EQ(beside.costs.stall_s, 2.0);
  EXPECT_DOUBLE_EQ(beside.costs.write_s, 8.0);
  EXPECT_DOUBLE_EQ(beside.costs.restart_s, 68.0);
  EXPECT_DOUBLE_EQ(beside.interval_s, 300.0);
  EXPECT_DOUBLE_EQ(beside.goodput, expected_goodput(beside.costs, 300.0));
  // Training that waits for the whole save has nothing to lose while it is written.
  gpu.profile.node.copy_bytes_per_s = 0.0;
  const FailureOutlook waiting = gpu.outlook();
  EXPECT_DOUBLE_EQ(waiting.costs.stall_s, 8.0);
  EXPECT_DOUBLE_EQ(waiting.costs.write_s, 0.0);
  EXPECT_DOUBLE_EQ(waiting.goodput,
                   Example("some GPU", {"checkpoint.every=10", "checkpoint.async=false"})
                       .outlook()
                       .goodput);
}

TEST(FailureOutlook, OfSparesTellsWhatWaitingForNodesCosts) {
  const Example gpu("some GPU", {"checkpoint.every=10"});
  const FailureOutlook at_once = gpu.outlook();
  EXPECT_FALSE(at_once.spares.has_value());
  // A node fails every five hours, and after as long a time a new node is there.
  Cluster cluster = gpu.on(12);
  const FailureOutlook none = gpu.outlook(cluster, 5.0 * 3600.0).value();
  EXPECT_DOUBLE_EQ(none.spares->waits, 0.5);
  EXPECT_DOUBLE_EQ(none.goodput, at_once.goodput / 2.0);
  EXPECT_DOUBLE_EQ(none.best_goodput, at_once.best_goodput / 2.0);
  EXPECT_DOUBLE_EQ(none.spares->goodput, none.goodput);
  EXPECT_DOUBLE_EQ(none.spares->per_node, none.goodput);
  EXPECT_DOUBLE_EQ(none.best_interval_s, at_once.best_interval_s);
  cluster.spares = 1;
  const FailureOutlook one = gpu.outlook(cluster, 5.0 * 3600.0).value();
  EXPECT_DOUBLE_EQ(one.spares->waits, 0.2);
  EXPECT_DOUBLE_EQ(one.goodput, at_once.goodput * 0.8);
  EXPECT_DOUBLE_EQ(one.spares->per_node, one.goodput * 2.0 / 3.0);
  // 0.5 of the run's time for two paid nodes is less than 0.8 for three.
  EXPECT_EQ(none.best_spares->spares, 1);
  EXPECT_DOUBLE_EQ(none.best_spares->per_node, one.spares->per_node);
}

TEST(RunTotals, CountThePriceOfSparesAndNotTheirPower) {
  Example gpu("some GPU");
  gpu.profile.node.watts = 5000.0;
  gpu.profile.node.price_per_hour = 10.0;
  Cluster cluster = gpu.on(12);
  cluster.spares = 1;
  const RunTotals totals = totals_of(cluster, 7200.0);
  EXPECT_DOUBLE_EQ(totals.node_hours, 6.0);
  EXPECT_DOUBLE_EQ(totals.money, 60.0);
  EXPECT_DOUBLE_EQ(totals.kilowatt_hours, 20.0);
}

}  // namespace
}  // namespace longhaul::plan
