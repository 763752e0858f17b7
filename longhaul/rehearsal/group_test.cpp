#include "longhaul/rehearsal/group.h"

#include <gtest/gtest.h>

#include <thread>

#include "longhaul/base/error.h"

namespace longhaul::rehearsal {
namespace {

using comm::ReduceOp;
using format::DType;

/// Runs `body` as each rank, on a thread of its own.
template <typename Body>
void run_ranks(Board& board, int ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto player = std::make_shared<Player>();
      player->rank = r;
      player->board = &board;
      body(player, *RecordedGroup::world(player));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RecordedGroup, ASplitHasTheRanksOfAColourInTheOrderOfTheirKeys) {
  Board board(6);
  run_ranks(board, 6, [](const auto& player, comm::Communicator& world) {
    const auto part = world.split(world.rank() % 2, -world.rank(), "part");
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(part->rank(), 2 - world.rank() / 2);
    const auto again = part->split(part->rank() == 0 ? 0 : 1, 0, "rest");
    EXPECT_EQ(again->size(), part->rank() == 0 ? 1 : 2);
    EXPECT_EQ(player->groups.size(), 3U);
  });
  ASSERT_EQ(board.groups().size(), 7U);
  EXPECT_EQ(board.groups()[1].name, "part");
  std::vector<std::vector<int>> parts = {board.groups()[1].ranks,
                                         board.groups()[2].ranks};
  EXPECT_EQ(parts, (std::vector<std::vector<int>>{{4, 2, 0}, {5, 3, 1}}));
}

TEST(RecordedGroup, ARankThatFailsEndsTheWaitsOfTheOthers) {
  Board board(2);
  std::thread other(
      [&] { board.give_up(std::make_exception_ptr(InputError("test", "it fails"))); });
  const auto player = std::make_shared<Player>();
  player->board = &board;
  EXPECT_THROW(RecordedGroup::world(player)->split(0, 0, "part"), InputError);
  other.join();
}

TEST(RecordedGroup, MemoryOfTheHostGetsWhatEqualRanksWouldBring) {
  Board board(3);
  const auto player = std::make_shared<Player>();
  player->board = &board;
  const auto world = RecordedGroup::world(player);
  std::vector<int64_t> counts = {5, 7};
  world->all_reduce_wait(counts, ReduceOp::Sum);
  EXPECT_EQ(counts, (std::vector<int64_t>{15, 21}));
  world->all_reduce_wait(counts, ReduceOp::Max);
  EXPECT_EQ(counts, (std::vector<int64_t>{15, 21}));
  EXPECT_EQ(world->gather_strings("mine"),
            (std::vector<std::string>{"mine", "mine", "mine"}));
}

TEST(RecordedGroup, OperationsAreWrittenDownInTheOrderOfTheHost) {
  Board board(2);
  Script script;
  const auto player = std::make_shared<Player>();
  player->board = &board;
  player->script = &script;
  int64_t there = 0;
  player->on_device = [&](const void* address) { return address == &there; };
  const auto world = RecordedGroup::world(player);
  player->ledger.set("update", 2);
  const auto first = world->all_reduce({&there, 1, DType::I64}, ReduceOp::Sum);
  world->send_recv({{comm::Transfer::Kind::Send, 1, {&there, 1, DType::I64}}})->order();
  world->barrier_wait();
  first->wait();
  first->wait();
  EXPECT_EQ(there, 0);  // nobody touches memory of the device
  ASSERT_EQ(script.operations.size(), 3U);
  EXPECT_EQ(script.operations[0].lane, Lane::Collectives);
  EXPECT_EQ(script.operations[0].step, 2);
  EXPECT_EQ(script.texts[static_cast<size_t>(script.operations[0].phase)], "update");
  EXPECT_EQ(script.operations[1].lane, Lane::Transfers);
  EXPECT_EQ(script.operations[1].messages, (std::vector<Message>{{1, true, 8}}));
  EXPECT_EQ(script.operations[2].lane, Lane::Host);
  std::vector<std::pair<Act::Kind, uint32_t>> acts;
  for (const Act& act : script.acts) acts.emplace_back(act.kind, act.operation);
  using enum Act::Kind;
  const std::vector<std::pair<Act::Kind, uint32_t>> expected = {
      {Start, 0}, {Start, 1}, {Order, 1}, {Start, 2}, {Wait, 2}, {Wait, 0}};
  EXPECT_EQ(acts, expected);
}

}  // namespace
}  // namespace longhaul::rehearsal
