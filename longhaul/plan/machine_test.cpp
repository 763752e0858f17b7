#include "longhaul/plan/machine.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "tests/support/settings.h"

namespace longhaul::plan {
namespace {

using layout::GroupKind;
using layout::TrafficKind;
using layout::Verb;

/// Returns links with seconds per message, so that bytes and messages are told apart.
Machine example_machine() {
  Machine machine;
  machine.node_ranks = 8;
  machine.inside = {100.0, 1.0};
  machine.between = {10.0, 5.0};
  return machine;
}

double time_of(TrafficKind kind, Verb verb, int64_t ranks, int64_t on_node, int64_t calls,
               int64_t bytes) {
  return seconds_of(example_machine(), {ranks, on_node},
                    {kind, GroupKind::Dp, verb, calls, bytes});
}

TEST(Collectives, OfARingInsideANode) {
  // 3 messages a gather, and 700 bytes at 100 B/s.
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Tensor, Verb::AllGather, 4, 4, 1, 700),
                   3.0 + 7.0);
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Tensor, Verb::AllReduce, 4, 4, 2, 700),
                   12.0 + 7.0);
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Pipeline, Verb::SendRecv, 4, 4, 1, 700),
                   1.0 + 7.0);
}

TEST(Collectives, OfARingAcrossNodesShareTheWayOut) {
  // A group with one rank on each node has an eighth of the node's 80 B/s.
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Gradients, Verb::ReduceScatter, 4, 1, 1, 200),
                   3.0 * 5.0 + 20.0);
  // A group with all ranks of two nodes has all of it: 200 bytes at 80 B/s are faster
  // than nothing else, since inside the node they take 2 s.
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Gradients, Verb::AllGather, 16, 8, 1, 200),
                   15.0 * 5.0 + 2.5);
}

TEST(Collectives, OfRowsGoToEachRankDirectly) {
  // The other node has 8 of the 15 other ranks and gets 8/15 of 1500 bytes at 10 B/s.
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Experts, Verb::SendRecv, 16, 8, 1, 1500),
                   5.0 + 80.0);
  EXPECT_DOUBLE_EQ(time_of(TrafficKind::Experts, Verb::AllToAll, 8, 8, 3, 1500),
                   3.0 + 15.0);
}

TEST(Collectives, OfOneRankTakeNoTime) {
  EXPECT_EQ(time_of(TrafficKind::Tensor, Verb::AllReduce, 1, 1, 9, 900), 0.0);
}

TEST(Collectives, AreThoseThatWereMeasuredOverSuchAGroup) {
  Machine machine = example_machine();
  const auto time = [&](TrafficKind kind, Verb verb, int64_t on_node) {
    return seconds_of(machine, {16, on_node}, {kind, GroupKind::Dp, verb, 2, 1500});
  };
  const double of_link = time(TrafficKind::Weights, Verb::AllGather, 4);
  machine.exchanges = {{"tp", "all_gather", 16, 8, {500.0, 0.25}},
                       {"pp", "send_recv", 16, 8, {300.0, 0.0}},
                       {"ep", "expert rows", 16, 8, {150.0, 1.0}}};
  EXPECT_DOUBLE_EQ(time(TrafficKind::Weights, Verb::AllGather, 8), 3.0 + 0.5);
  EXPECT_DOUBLE_EQ(time(TrafficKind::Weights, Verb::AllGather, 4), of_link);
  EXPECT_DOUBLE_EQ(time(TrafficKind::Experts, Verb::SendRecv, 8), 10.0 + 2.0);
  EXPECT_DOUBLE_EQ(time(TrafficKind::Pipeline, Verb::SendRecv, 8), 5.0);
}

TEST(Spread, IsHowNeighbouringRanksLieOnNodes) {
  const layout::Groups groups({.pp = 2, .dp = 4, .cp = 1, .tp = 4}, 1, false, 0);
  const auto spread = [&](GroupKind kind) {
    const GroupSpread found = spread_of(groups, kind, 0, 8);
    return std::pair(found.ranks, found.on_node);
  };
  EXPECT_EQ(spread(GroupKind::Tp), std::pair(int64_t{4}, int64_t{4}));
  EXPECT_EQ(spread(GroupKind::Dp), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(spread(GroupKind::Pp), std::pair(int64_t{2}, int64_t{1}));
}

HardwareProfile example_profile() {
  HardwareProfile profile;
  profile.device = "some GPU";
  profile.peak_bf16 = 1e15;
  profile.peak_memory = 1e12;
  profile.efficiency = {0.8, 0.5, 0.9};
  profile.inside.bytes_per_s = 4e11;
  profile.between.bytes_per_s = 5e10;
  return profile;
}

TEST(Machine, HasMeasuredRatesWhereThereAreSome) {
  HardwareProfile profile = example_profile();
  const Machine peaks = machine_of(profile, "m.toml", true, 16, 8);
  EXPECT_DOUBLE_EQ(peaks.products, 8e14);
  EXPECT_DOUBLE_EQ(peaks.attention, 5e14);
  EXPECT_DOUBLE_EQ(peaks.memory, 9e11);
  profile.rates = {{"product bf16 1x1x1", "FLOP", 6e14},
                   {"product bf16 2x2x2", "FLOP", 7e14},
                   {"product bf16 3x3x3", "FLOP", 9e14},
                   {"copy through memory, read and written", "B", 8e11}};
  const Machine measured = machine_of(profile, "m.toml", true, 16, 8);
  EXPECT_DOUBLE_EQ(measured.products, 7e14);
  EXPECT_DOUBLE_EQ(measured.attention, 5e14);
  EXPECT_DOUBLE_EQ(measured.memory, 8e11);
  // Bench counts seven products of attention.
  profile.rates.push_back({"attention and backward 1x1, 1/1 heads of 1", "FLOP", 7e14});
  EXPECT_DOUBLE_EQ(machine_of(profile, "m.toml", true, 16, 8).attention, 6e14);
  profile.peak_fp32 = 1e14;
  EXPECT_DOUBLE_EQ(machine_of(profile, "m.toml", false, 16, 8).attention,
                   1e14 * profile.efficiency.attention);
  profile.rates.push_back({"attention fp32 and backward 1x1", "FLOP", 7e13});
  EXPECT_DOUBLE_EQ(machine_of(profile, "m.toml", false, 16, 8).attention, 6e13);
  EXPECT_DOUBLE_EQ(machine_of(profile, "m.toml", true, 16, 8).attention, 6e14);
}

TEST(Machine, HasTheRateOfProductsOfExpertsByTheirRows) {
  HardwareProfile profile = example_profile();
  profile.peak_fp32 = 1e14;
  const Machine plain = machine_of(profile, "m.toml", true, 1, 8);
  for (const double rows : {1.0, 64.0, 1e6}) {
    EXPECT_EQ(plain.grouped(rows), plain.products);
  }
  profile.rates = {{"grouped product bf16 256 rows", "FLOP", 6e14},
                   {"grouped product bf16 16 rows", "FLOP", 1e14},
                   {"grouped product bf16 64 rows", "FLOP", 2e14},
                   {"grouped product fp32 64 rows", "FLOP", 3e13}};
  const Machine machine = machine_of(profile, "m.toml", true, 1, 8);
  // Dense products keep their own rate.
  EXPECT_EQ(machine.products, plain.products);
  EXPECT_DOUBLE_EQ(machine.grouped(16.0), 1e14);
  EXPECT_DOUBLE_EQ(machine.grouped(64.0), 2e14);
  EXPECT_DOUBLE_EQ(machine.grouped(256.0), 6e14);
  // The square root of 16 times 64 is half of the way in the logarithm.
  EXPECT_DOUBLE_EQ(machine.grouped(32.0), 1.5e14);
  EXPECT_DOUBLE_EQ(machine.grouped(128.0), 4e14);
  EXPECT_DOUBLE_EQ(machine.grouped(0.5), 1e14);
  EXPECT_DOUBLE_EQ(machine.grouped(5000.0), 6e14);
  // One measurement holds for all rows.
  const Machine fp32 = machine_of(profile, "m.toml", false, 1, 8);
  EXPECT_DOUBLE_EQ(fp32.grouped(4.0), 3e13);
  EXPECT_DOUBLE_EQ(fp32.grouped(400.0), 3e13);
}

TEST(Machine, NamesWhatAProfileLacksAndWhatToAdd) {
  const auto message = [](const HardwareProfile& profile, bool bf16, int64_t ranks) {
    return message_of<ConfigError>(
        [&] { machine_of(profile, "m.toml", bf16, ranks, 8); });
  };
  HardwareProfile profile = example_profile();
  EXPECT_NE(message(profile, false, 16)
                .find("m.toml has no rate of products in fp32; add peak.fp32"),
            std::string::npos);
  profile.between = {};
  EXPECT_NE(message(profile, true, 16).find("no link between nodes; add [between]"),
            std::string::npos);
  machine_of(profile, "m.toml", true, 8, 8);
  profile.inside = {};
  EXPECT_NE(message(profile, true, 8).find("add [inside]"), std::string::npos);
  machine_of(profile, "m.toml", true, 1, 8);
  profile.efficiency.attention = 0.0;
  EXPECT_NE(message(profile, true, 1).find("efficiency.attention"), std::string::npos);
}

TEST(Machine, ComesAlongWithRatesLinksAndANode) {
  int found = 0;
  for (const auto& entry : fs::directory_iterator(source_dir() / "hardware")) {
    const std::string name = entry.path().string();
    const HardwareProfile profile = parse_hardware_profile(read_text(entry.path()), name);
    const Machine machine = machine_of(profile, name, true, 1024, profile.node.ranks);
    machine_of(profile, name, false, 1024, profile.node.ranks);
    EXPECT_GT(machine.peak, machine.products) << name;
    EXPECT_GT(profile.node.host_bytes, 0.0) << name;
    EXPECT_TRUE(profile.device == "cpu" || profile.node.device_bytes > 0.0) << name;
    const HardwareProfile again = parse_hardware_profile(to_toml(profile), name);
    EXPECT_EQ(to_toml(again), to_toml(profile)) << name;
    EXPECT_EQ(again.node.device_bytes, profile.node.device_bytes) << name;
    EXPECT_EQ(again.comparison_only, profile.comparison_only) << name;
    ++found;
  }
  EXPECT_EQ(found, 11);
}

}  // namespace
}  // namespace longhaul::plan
