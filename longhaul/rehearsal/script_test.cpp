#include "longhaul/rehearsal/script.h"

#include <gtest/gtest.h>

#include <utility>

namespace longhaul::rehearsal {
namespace {

using comm::Verb;
using enum Act::Kind;

/// Some ranks with a script each, and the groups "world" and "pair" of all of them.
class Cast {
 public:
  explicit Cast(size_t ranks) : scripts_(ranks) {
    for (const char* name : {"world", "pair"}) {
      groups_.push_back({name, {}});
      for (size_t r = 0; r < ranks; ++r) {
        groups_.back().ranks.push_back(static_cast<int>(r));
      }
    }
    for (Script& script : scripts_) script.texts = {"gradients", ""};
  }

  Script& operator[](size_t rank) { return scripts_[rank]; }

  /// Starts an operation, and puts it before what the device computes then.
  size_t order(size_t rank, int group, Verb verb, int64_t bytes) {
    const size_t started = start(rank, group, verb, bytes);
    scripts_[rank].add(Order, started);
    return started;
  }
  size_t start(size_t rank, int group, Verb verb, int64_t bytes,
               std::vector<Message> messages = {}) {
    Operation operation;
    operation.group = group;
    operation.lane = messages.empty() ? Lane::Collectives : Lane::Transfers;
    operation.verb = verb;
    operation.bytes = bytes;
    operation.step = 1;
    operation.label = 1;
    operation.messages = std::move(messages);
    return scripts_[rank].start(std::move(operation));
  }
  void wait(size_t rank, int group, Verb verb, int64_t bytes) {
    scripts_[rank].add(Wait, start(rank, group, verb, bytes));
  }
  void exchange(size_t rank, std::vector<Message> messages) {
    scripts_[rank].add(Wait, start(rank, 0, Verb::SendRecv, 8, std::move(messages)));
  }

  /// Returns what is wrong; empty if nothing is.
  std::string problem() const {
    std::vector<ScriptedRank> ranks;
    for (size_t r = 0; r < scripts_.size(); ++r) {
      ranks.push_back({&scripts_[r], {0, 1}, "tp " + std::to_string(r)});
    }
    return find_mismatch(ranks, groups_).value_or("");
  }

 private:
  std::vector<Script> scripts_;
  std::vector<GroupMembers> groups_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Match, RanksThatDoTheSameComeToTheirEnd) {
  Cast cast(3);
  for (size_t r = 0; r < 3; ++r) {
    for (int i = 0; i < 5; ++i) {
      cast.wait(r, i % 2, Verb::AllReduce, 64);
      cast.order(r, 0, Verb::AllGather, 128);
    }
  }
  EXPECT_EQ(cast.problem(), "");
}

TEST(Match, CollectivesThatOneRankSwapsAreNamedWithBothOperands) {
  Cast cast(3);
  for (size_t r = 0; r < 3; ++r) {
    cast.wait(r, 0, Verb::AllReduce, 4);
    cast.order(r, 0, r == 2 ? Verb::AllGather : Verb::ReduceScatter, r == 2 ? 32 : 16);
    cast.order(r, 0, r == 2 ? Verb::ReduceScatter : Verb::AllGather, r == 2 ? 16 : 32);
  }
  EXPECT_EQ(
      cast.problem(),
      "operations that do not match: rank 0 (tp 0) calls reduce_scatter number 2 of "
      "'world' (16 bytes of U8, sum; step 1, gradients), but rank 2 (tp 2) calls "
      "all_gather number 2 of 'world' (32 bytes of U8; step 1, gradients)");
}

TEST(Match, ASumThatMeetsAMaximumIsNamed) {
  Cast cast(2);
  for (size_t r = 0; r < 2; ++r) cast.wait(r, 1, Verb::AllReduce, 8);
  cast[1].operations[0].op = comm::ReduceOp::Max;
  EXPECT_TRUE(has(cast.problem(), "sum; step 1, gradients), but rank 1 (tp 1)"));
}

TEST(Match, HostsThatWaitForEachOtherInTwoGroupsAreADeadlock) {
  Cast cast(2);
  for (size_t r = 0; r < 2; ++r) {
    cast.wait(r, static_cast<int>(r), Verb::AllReduce, 8);
    cast.wait(r, static_cast<int>(1 - r), Verb::AllReduce, 8);
  }
  EXPECT_EQ(
      cast.problem(),
      "a deadlock: 2 ranks wait for each other:\n"
      "  rank 0 (tp 0) waits in all_reduce number 1 of 'world' (8 bytes of U8, sum; "
      "step 1, gradients) for rank 1\n"
      "  rank 1 (tp 1) waits in all_reduce number 1 of 'pair' (8 bytes of U8, sum; "
      "step 1, gradients) for rank 0");
}

TEST(Match, DevicesThatWaitForEachOtherInTwoGroupsAreADeadlock) {
  Cast cast(2);
  for (size_t r = 0; r < 2; ++r) {
    cast.order(r, static_cast<int>(r), Verb::AllReduce, 8);
    cast.order(r, static_cast<int>(1 - r), Verb::AllReduce, 8);
  }
  EXPECT_TRUE(has(cast.problem(), "a deadlock: 2 ranks"));
}

TEST(Match, AHostThatWaitsForItsDeviceWaitsForWhatTheDeviceWaitsFor) {
  for (const bool drains : {false, true}) {
    Cast cast(2);
    cast.order(0, 0, Verb::AllReduce, 8);
    if (drains) cast[0].add(Drain, 0);
    cast.wait(0, 1, Verb::AllReduce, 8);
    cast.wait(1, 1, Verb::AllReduce, 8);
    cast.order(1, 0, Verb::AllReduce, 8);
    // The second operation is one of the host, which does not wait for the device.
    cast[0].operations[1].lane = cast[1].operations[0].lane = Lane::Host;
    EXPECT_EQ(has(cast.problem(), "a deadlock: 2 ranks"), drains) << cast.problem();
  }
}

TEST(Match, ARankThatOnlyWaitsForTheCircleIsNotNamedInIt) {
  Cast cast(3);
  cast.wait(0, 0, Verb::AllReduce, 8);
  for (size_t r = 1; r < 3; ++r) {
    const auto peer = static_cast<int32_t>(3 - r);
    cast.exchange(r, {{peer, true, 8}});
    cast.exchange(r, {{peer, false, 8}});
    cast.wait(r, 0, Verb::AllReduce, 8);
  }
  EXPECT_TRUE(has(cast.problem(), "a deadlock: 2 ranks wait for each other:\n  rank 1"))
      << cast.problem();
}

TEST(Match, CollectivesOfTwoGroupsThatStartInDifferentOrdersAreNamed) {
  Cast cast(2);
  for (size_t r = 0; r < 2; ++r) {
    const size_t first = cast.start(r, static_cast<int>(r), Verb::AllReduce, 8);
    const size_t second = cast.start(r, static_cast<int>(1 - r), Verb::AllReduce, 8);
    cast[r].add(Wait, first);
    cast[r].add(Wait, second);
  }
  EXPECT_TRUE(has(cast.problem(), "start in different orders: rank 0 (tp 0) starts"));
  // Operations of the host's memory have queues of their own.
  for (size_t r = 0; r < 2; ++r) {
    for (Operation& operation : cast[r].operations) operation.lane = Lane::Host;
  }
  EXPECT_EQ(cast.problem(), "");
}

TEST(Match, SendsThatWaitForEachOtherAreADeadlockAndTogetherAreNone) {
  Cast apart(2), together(2);
  for (size_t r = 0; r < 2; ++r) {
    const auto peer = static_cast<int32_t>(1 - r);
    const Message send{peer, true, 8}, receive{peer, false, 8};
    apart.exchange(r, {send});
    apart.exchange(r, {receive});
    together.exchange(r, {send, receive});
  }
  EXPECT_TRUE(has(apart.problem(), "a deadlock: 2 ranks"));
  EXPECT_EQ(together.problem(), "");
}

TEST(Match, AMessageOfAnotherSizeIsNamed) {
  Cast cast(2);
  cast.exchange(0, {{1, true, 8}});
  cast.exchange(1, {{0, false, 16}});
  EXPECT_TRUE(has(cast.problem(), "rank 0 (tp 0) sends 8 bytes in send_recv number 1"));
  EXPECT_TRUE(has(cast.problem(), "rank 1 (tp 1) expects 16 bytes in send_recv"));
}

TEST(Match, ARankThatLacksTheLastOperationIsNamed) {
  Cast cast(3);
  for (size_t r = 0; r < 3; ++r) cast.wait(r, 0, Verb::AllReduce, 8);
  for (size_t r = 0; r < 2; ++r) cast.wait(r, 0, Verb::AllGather, 8);
  EXPECT_TRUE(has(cast.problem(), "waits in all_gather number 2 of 'world'"));
  EXPECT_TRUE(has(cast.problem(), "rank 2 (tp 2) has come to its end"));
}

TEST(Match, ARankThatNeverReceivesIsNamed) {
  Cast cast(2);
  cast.exchange(0, {{1, true, 8}});
  EXPECT_TRUE(has(cast.problem(), "rank 1 (tp 1) has come to its end"));
}

}  // namespace
}  // namespace longhaul::rehearsal
