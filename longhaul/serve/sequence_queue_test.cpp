#include "longhaul/serve/sequence_queue.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "longhaul/base/error.h"
#include "longhaul/serve/engine_link.h"

namespace longhaul::serve {
namespace {

Sequence sequence_of(uint64_t number, size_t length, int64_t max_tokens) {
  Sequence sequence;
  sequence.number = number;
  sequence.prompt.assign(length, 7);
  sequence.max_tokens = max_tokens;
  return sequence;
}

std::vector<uint64_t> numbers_of(const std::vector<Sequence>& batch) {
  std::vector<uint64_t> numbers;
  for (const Sequence& sequence : batch) numbers.push_back(sequence.number);
  return numbers;
}

TEST(TakeBatch, TakesWhatHasWaitedLongestAndFits) {
  std::deque<Sequence> waiting = {sequence_of(1, 10, 1), sequence_of(2, 4, 1),
                                  sequence_of(3, 40, 1), sequence_of(4, 3, 1)};
  // Each sequence counts as the longest of its batch: three of 10 positions have room.
  EXPECT_EQ(numbers_of(take_batch(waiting, {8, 30})), (std::vector<uint64_t>{1, 2, 4}));
  // One sequence alone may be longer.
  EXPECT_EQ(numbers_of(take_batch(waiting, {8, 30})), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(waiting.empty());
  EXPECT_TRUE(take_batch(waiting, {8, 30}).empty());
}

TEST(TakeBatch, CountsTheLongestPromptAndTheMostTokensBehindIt) {
  std::deque<Sequence> waiting = {sequence_of(1, 10, 2), sequence_of(2, 2, 11)};
  std::deque<Sequence> again = waiting;
  EXPECT_EQ(take_batch(waiting, {8, 39}).size(), 1U);
  EXPECT_EQ(take_batch(again, {8, 40}).size(), 2U);
}

TEST(TakeBatch, KeepsWhatIsOnlyScoredApartFromWhatGoesOn) {
  std::deque<Sequence> waiting = {sequence_of(1, 4, 1), sequence_of(2, 4, 5),
                                  sequence_of(3, 4, 0), sequence_of(4, 4, 9)};
  EXPECT_EQ(numbers_of(take_batch(waiting, {8, 100})), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(numbers_of(take_batch(waiting, {1, 100})), (std::vector<uint64_t>{2}));
  EXPECT_EQ(numbers_of(take_batch(waiting, {8, 100})), (std::vector<uint64_t>{4}));
}

/// Both ends of a socket.
struct Ends {
  Ends() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    rank = Descriptor(ends[0]);
    http = Descriptor(ends[1]);
  }
  Descriptor rank, http;
};

TEST(SequenceQueue, GetsWhatACallWantsAndTheCallItsEvents) {
  const Ends ends;
  SequenceQueue queue(ends.rank.get());
  EngineLink link(ends.http.get());
  EngineLink::Call call(link, {sequence_of(0, 3, 2), sequence_of(0, 5, 2)});
  std::vector<Sequence> batch;
  while (batch.size() < 2) {
    for (Sequence& one : queue.take({}, 10)) batch.push_back(std::move(one));
  }
  EXPECT_EQ(batch[0].prompt.size(), 3U);
  EXPECT_EQ(batch[1].prompt.size(), 5U);
  queue.tell(Json::array({{{"number", batch[1].number}, {"id", 9}},
                          {{"number", batch[0].number}, {"end", "stop"}}}));
  auto event = call.next(10);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->first, 1U);
  EXPECT_EQ(event->second["id"], 9);
  event = call.next(10);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->first, 0U);
  EXPECT_EQ(event->second["end"], "stop");
  EXPECT_FALSE(call.next(0.01));
}

TEST(SequenceQueue, ForgetsWhatNobodyWaitsForAnyMore) {
  const Ends ends;
  SequenceQueue queue(ends.rank.get());
  EngineLink link(ends.http.get());
  std::vector<Sequence> taken;
  {
    EngineLink::Call call(link, {sequence_of(0, 3, 2)});
    while (taken.empty()) taken = queue.take({}, 10);
    EXPECT_FALSE(queue.is_cancelled(taken[0].number));
  }
  while (!queue.is_cancelled(taken[0].number)) std::this_thread::yield();
  {
    EngineLink::Call never_taken(link, {sequence_of(0, 4, 2)});
  }
  EngineLink::Call last(link, {sequence_of(0, 6, 2)});
  std::vector<Sequence> next;
  while (next.empty() || next.back().prompt.size() != 6) {
    next = queue.take({}, 10);
  }
  EXPECT_EQ(next.back().prompt.size(), 6U);
}

TEST(EngineLink, RefusesMoreThanHasRoom) {
  const Ends ends;
  EngineLink link(ends.http.get());
  std::vector<Sequence> many(static_cast<size_t>(kMostSequences), sequence_of(0, 1, 1));
  const SequenceQueue queue(ends.rank.get());
  const EngineLink::Call full(link, many);
  EXPECT_THROW(EngineLink::Call(link, {sequence_of(0, 1, 1)}), TemporaryError);
}

TEST(EngineLink, CountsTheTokensAndLogProbabilitiesThatARequestMayTake) {
  const Ends ends;
  EngineLink link(ends.http.get());
  const SequenceQueue queue(ends.rank.get());
  Sequence one = sequence_of(0, 1000, kMostNumbers / 16 - 1000);
  one.top = 2;  // each token is four numbers: its id, and three log-probabilities
  EXPECT_THROW(EngineLink::Call(link, {one, one, one, one, one}), InputError);
  const EngineLink::Call full(link, {one, one, one, one});
  EXPECT_THROW(EngineLink::Call(link, {sequence_of(0, 1, 0)}), TemporaryError);
}

TEST(EngineLink, TellsThatRankZeroHasEnded) {
  Ends ends;
  EngineLink link(ends.http.get());
  EngineLink::Call call(link, {sequence_of(0, 1, 1)});
  ends.rank.reset();
  EXPECT_THROW(call.next(10), TemporaryError);
  link.await_end();
}

TEST(SequenceQueue, TellsThatTheProcessForHttpHasEnded) {
  Ends ends;
  SequenceQueue queue(ends.rank.get());
  ends.http.reset();
  EXPECT_THROW(queue.take({}, 10), TemporaryError);
}

}  // namespace
}  // namespace longhaul::serve
