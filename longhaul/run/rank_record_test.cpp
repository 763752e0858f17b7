#include "longhaul/run/rank_record.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include "longhaul/base/clock.h"
#include "longhaul/base/process.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

OperationName operation(int64_t number) {
  return {"tp", "all_reduce", number, 4096, "gradient bucket 3"};
}

TEST(RankRecord, SaysWhatTheRankWaitsForAndForHowLong) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 3, 8);
  record.set_place({.pp = 1, .tp = 1});
  record.set("backward", 12);
  record.waits(record.started({"tp", "all_reduce", 8812, 4096, ""}),
               {"tp", "all_reduce", 8812, 4096, ""});
  const RankState state = read_rank_record(dir.path() / "rank_00003.record");
  EXPECT_EQ(to_string(state, state.waits_since + 64.2),
            "rank 3 (pp 1 dp 0 cp 0 tp 1) step 12 phase backward: waits in all_reduce "
            "number 8812 (4096 bytes) on 'tp' for 64 s");
  EXPECT_EQ(state.place, (Place{.pp = 1, .tp = 1}));
  EXPECT_EQ(state.world, 8);
  EXPECT_EQ(state.pid, ::getpid());
  EXPECT_EQ(state.host, host_name());
  EXPECT_NEAR(state.waits_since, machine_seconds(), 5.0);
  EXPECT_FALSE(state.torn);
}

TEST(RankRecord, ARankThatWaitsForNothingSaysWhatItDidLast) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  const fs::path path = rank_record_path(dir.path(), 0);
  RankState state = read_rank_record(path);
  EXPECT_EQ(to_string(state, state.created + 5),
            "rank 0 step 0 phase start: in no collective for 5 s");
  const uint64_t first = record.started(operation(7));
  record.waits(first, operation(7));
  record.waited();
  state = read_rank_record(path);
  EXPECT_FALSE(state.waits);
  EXPECT_EQ(to_string(state, state.operations.back().started + 9),
            "rank 0 step 0 phase start: in no collective for 9 s, last all_reduce number "
            "7 (4096 bytes) on 'tp' [gradient bucket 3] (under way)");
  record.ended(first);
  record.failed("[comm] the other rank is gone");
  state = read_rank_record(path);
  EXPECT_GE(state.operations.back().ended, state.operations.back().started);
  EXPECT_GT(state.operations.back().ended, 0.0);
  EXPECT_EQ(to_string(state, machine_seconds()),
            "rank 0 step 0 phase start: failed: [comm] the other rank is gone");
}

TEST(RankRecord, AFailureOfAnotherRankIsNotTheRanksOwnUntilItsNextPhase) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 2);
  const fs::path path = rank_record_path(dir.path(), 0);
  EXPECT_FALSE(read_rank_record(path).told);
  record.told();
  record.failed("[checkpoint] rank 1: no room");
  record.finished(75);
  EXPECT_TRUE(read_rank_record(path).told);
  record.set("forward", 3);
  EXPECT_FALSE(read_rank_record(path).told);
}

TEST(RankRecord, KeepsTheNewestOperationsInOrder) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  uint64_t old = 0;
  for (int64_t i = 1; i <= 40; ++i) {
    const uint64_t ticket = record.started(operation(i));
    if (i == 1) old = ticket;
  }
  record.ended(old);  // long overwritten: no other operation may end for it
  const RankState state = read_rank_record(rank_record_path(dir.path(), 0));
  ASSERT_EQ(state.operations.size(), static_cast<size_t>(kRecordedOperations));
  for (int64_t i = 0; i < kRecordedOperations; ++i) {
    EXPECT_EQ(state.operations[static_cast<size_t>(i)].number, 9 + i);
    EXPECT_EQ(state.operations[static_cast<size_t>(i)].ended, 0.0);
  }
}

TEST(RankRecord, LongTextsAreCutAndEndNowhereElse) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  const std::string longer(2000, 'x');
  record.set(longer, 1);
  record.failed(longer);
  record.started({longer, longer, 1, 2, longer});
  const RankState state = read_rank_record(rank_record_path(dir.path(), 0));
  EXPECT_EQ(state.phase, std::string(32, 'x'));
  EXPECT_EQ(state.failure, std::string(512, 'x'));
  EXPECT_EQ(state.operations.at(0).label, std::string(48, 'x'));
  EXPECT_EQ(state.operations.at(0).number, 1);
}

TEST(RankRecord, KeepsTheMedianSecondsOfTheLastStepsAndTheExitCode) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  const fs::path path = rank_record_path(dir.path(), 0);
  EXPECT_EQ(read_rank_record(path).exit_code, -1);
  EXPECT_EQ(read_rank_record(path).step_busy_seconds, 0.0);
  for (int i = 0; i < 3; ++i) record.step_done(2.0, 1.0);
  record.step_done(100.0, 90.0);  // one outlier among four
  RankState state = read_rank_record(path);
  EXPECT_EQ(state.steps_done, 4);
  EXPECT_EQ(state.step_wall_seconds, 2.0);
  EXPECT_EQ(state.step_busy_seconds, 1.0);
  EXPECT_GE(state.last_progress(), state.step_ended);
  for (int i = 0; i < kRecordedSteps; ++i) record.step_done(4.0, 3.0);
  record.finished(75);
  state = read_rank_record(path);
  EXPECT_EQ(state.step_wall_seconds, 4.0);
  EXPECT_EQ(state.step_busy_seconds, 3.0);
  EXPECT_EQ(state.exit_code, 75);
}

TEST(RankRecord, KeepsHowLongTheLongestPhaseOfEachKindTook) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  // However many other phases come first, those that a supervisor learns from are kept.
  for (int i = 0; i < 20; ++i) record.set("rehearsal: " + std::to_string(i), 0);
  for (const int milliseconds : {60, 5}) {
    record.set("checkpoint", 5);
    ::usleep(static_cast<useconds_t>(1000 * milliseconds));
    record.set("gradients", 6);
  }
  const auto phases = read_rank_record(rank_record_path(dir.path(), 0)).longest_phases;
  ASSERT_TRUE(phases.contains("checkpoint"));
  EXPECT_GE(phases.at("checkpoint"), 0.06);
  EXPECT_LT(phases.at("checkpoint"), 30.0);
  EXPECT_EQ(phases.size(), 1U);
}

TEST(RankRecord, WorkBesideOthersIsProgressAndHasALength) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  const fs::path path = rank_record_path(dir.path(), 0);
  const double before = read_rank_record(path).last_progress();
  ::usleep(5'000);
  record.moved();
  record.lasted("checkpoint wait", 80.0);
  record.lasted("checkpoint wait", 20.0);
  const RankState state = read_rank_record(path);
  EXPECT_GE(state.last_progress(), before + 0.004);
  EXPECT_EQ(state.longest_phases.at("checkpoint wait"), 80.0);
}

TEST(RankRecord, OutlivesAKilledWriter) {
  const TestDirectory dir;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RankRecord record = RankRecord::create(dir.path(), 1, 2);
    record.set("forward", 5);
    record.waits(record.started(operation(4)), operation(4));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  const RankState state = read_rank_record(rank_record_path(dir.path(), 1));
  EXPECT_EQ(state.pid, child);
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(to_string(state.waits_for.name()),
            "all_reduce number 4 (4096 bytes) on 'tp' [gradient bucket 3]");
}

TEST(RankRecord, AWriterThatDiedInTheMiddleOfAChangeIsTold) {
  constexpr size_t kSequence = 104;  // after magic, version, size, ranks, pid, time, host
  const TestDirectory dir;
  {
    RankRecord record = RankRecord::create(dir.path(), 0, 1);
    record.set("forward", 1);
  }
  const fs::path path = rank_record_path(dir.path(), 0);
  EXPECT_FALSE(read_rank_record(path).torn);
  std::string text = read_text(path);
  ++text[kSequence];
  write_text_atomic(path, text);
  const RankState state = read_rank_record(path);
  EXPECT_TRUE(state.torn);
  EXPECT_HAS(to_string(state, machine_seconds()), "(read in the middle of a change)");
}

TEST(RankRecord, IsReadWholeWhileItsWriterIsAtWork) {
  const TestDirectory dir;
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i) {
      record.set(i % 2 == 0 ? "even" : "odd", i);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  int whole = 0;
  for (int i = 0; i < 20000 && whole < 200; ++i) {
    const RankState state = read_rank_record(rank_record_path(dir.path(), 0));
    if (state.torn || state.step == 0) continue;
    ++whole;
    EXPECT_EQ(state.phase, state.step % 2 == 0 ? "even" : "odd");
  }
  stop = true;
  writer.join();
  EXPECT_EQ(whole, 200);
}

TEST(RankRecord, ANewStartReplacesTheOldRecord) {
  const TestDirectory dir;
  RankRecord old = RankRecord::create(dir.path(), 0, 1);
  old.set("old", 9);
  RankRecord record = RankRecord::create(dir.path(), 0, 1);
  old.set("older", 10);
  EXPECT_EQ(read_rank_record(rank_record_path(dir.path(), 0)).phase, "start");
}

TEST(RankRecord, ForeignFilesAreRefused) {
  const TestDirectory dir;
  {
    const RankRecord record = RankRecord::create(dir.path(), 0, 1);
  }
  const fs::path path = rank_record_path(dir.path(), 0);
  const std::string sound = read_text(path);
  const auto with = [&](size_t at, char value) {
    std::string text = sound;
    text[at] = value;
    write_text_atomic(path, text);
    return message_of<InputError>([&] { read_rank_record(path); });
  };
  EXPECT_HAS(with(0, 'X'), "is no rank record");
  EXPECT_HAS(with(8, 9), "version 9");
  write_text_atomic(path, sound.substr(0, 100));
  EXPECT_HAS(message_of<InputError>([&] { read_rank_record(path); }), "has 100 bytes");
}

}  // namespace
}  // namespace longhaul::run
