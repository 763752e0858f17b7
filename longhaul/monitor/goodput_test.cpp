#include "longhaul/monitor/goodput.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/made_up_run.h"

namespace longhaul::monitor {
namespace {

void expect_tiles(const Ledger& ledger) {
  std::array<int64_t, kTimeClasses> sums{};
  for (size_t i = 0; i < ledger.spans.size(); ++i) {
    const Span& span = ledger.spans[i];
    ASSERT_LT(span.begin, span.end);
    if (i > 0) {
      ASSERT_EQ(span.begin, ledger.spans[i - 1].end);
    }
    sums[static_cast<size_t>(span.kind)] += span.end - span.begin;
  }
  EXPECT_EQ(sums, ledger.micros);
}

/// Compares a ledger with the truth. Rounding of times to doubles and back costs a
/// microsecond per event.
void expect_truth(const MadeUpRun& run, const Ledger& ledger) {
  expect_tiles(ledger);
  EXPECT_NEAR(static_cast<double>(ledger.total_micros()),
              static_cast<double>(run.now - run.begin), 2.0);
  const auto truth = run.truth();
  const auto slack = 4.0 * static_cast<double>(run.records.all().size() + 10);
  for (size_t i = 0; i < kTimeClasses; ++i) {
    EXPECT_NEAR(static_cast<double>(ledger.micros[i]), static_cast<double>(truth[i]),
                slack)
        << text_of(static_cast<TimeClass>(i)).name;
  }
}

void train(MadeUpRun& run) {
  for (int64_t steps = run.pick(3, 40); steps > 0; --steps) {
    run.step();
    if (run.chance(0.1)) run.validate();
    if (run.chance(0.15)) run.save();
  }
  run.step();
}

void leave_alone(MadeUpRun& run) {
  if (run.chance(0.5)) {
    run.idle();
  } else {
    run.wait_in_queue();
  }
}

TEST(Goodput, FindsTheTrueClassOfEachMicrosecondOfSupervisedRuns) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    MadeUpRun run(seed);
    for (int64_t jobs = run.pick(1, 3); jobs > 0; --jobs) {
      run.supervisor_starts();
      for (int64_t starts = run.pick(1, 4); starts > 0; --starts) {
        run.start();
        train(run);
        if (starts == 1) break;
        if (run.chance(0.3)) {
          run.fail();
        } else {
          run.die();
        }
        run.down();
      }
      run.end();
      run.down();
      run.supervisor_ends();
      if (jobs > 1) leave_alone(run);
    }
    expect_truth(run, make_ledger(run.records, run.events, std::nullopt));
  }
}

TEST(Goodput, FindsTheTrueClassOfEachMicrosecondWithoutASupervisor) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    MadeUpRun run(seed);
    for (int64_t starts = run.pick(1, 5); starts > 0; --starts) {
      run.start();
      train(run);
      if (starts == 1) break;
      if (run.chance(0.5)) {
        run.end();
        leave_alone(run);
      } else {
        run.die();
        run.down();
      }
    }
    expect_truth(
        run, make_ledger(run.records, run.events, static_cast<double>(run.now) * 1e-6));
  }
}

TEST(Goodput, AddsUpExactlyWhateverTheTimesSay) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(-10.0, 1000.0);
  const char* const kinds[] = {"start",   "end",     "failure",          "checkpoint",
                               "signal",  "restart", "supervisor_start", "supervisor_end",
                               "rollback"};
  for (int round = 0; round < 300; ++round) {
    Records records;
    std::vector<Event> events;
    for (int i = 0; i < 60; ++i) {
      run::StepRecord record;
      record.step = static_cast<int64_t>(random() % 30);
      record.attempt = static_cast<int>(random() % 4);
      record.time = time(random);
      record.step_time = std::abs(time(random));
      record.data_time = std::min(record.step_time, std::abs(time(random)));
      records.add(record);
      const char* kind = kinds[random() % std::size(kinds)];
      Json fields = {{"step", random() % 30},
                     {"file", "PAUSE"},
                     {"attempt", random() % 4},
                     {"stall", time(random)},
                     {"seconds", time(random)}};
      events.push_back({kind, std::abs(time(random)), std::move(fields)});
    }
    const auto until = random() % 2 == 0 ? std::optional(900.0) : std::nullopt;
    const Ledger ledger = make_ledger(records, events, until);
    expect_tiles(ledger);
    ASSERT_FALSE(ledger.spans.empty());
    EXPECT_EQ(ledger.total_micros(),
              ledger.spans.back().end - ledger.spans.front().begin);
    for (const int64_t micros : ledger.micros) EXPECT_GE(micros, 0);
  }
}

TEST(Goodput, PartsOfTheTimeAddUpToOneEachAndToTheLedger) {
  MadeUpRun run(5);
  run.start();
  for (int i = 0; i < 100; ++i) run.step();
  run.down();
  run.start();
  for (int i = 0; i < 10; ++i) run.step();
  const Ledger ledger = make_ledger(run.records, run.events, std::nullopt);
  const auto parts = ledger_parts(ledger, 37);
  std::array<double, kTimeClasses> means{};
  for (const auto& part : parts) {
    EXPECT_NEAR(std::accumulate(part.begin(), part.end(), 0.0), 1.0, 1e-6);
    for (size_t i = 0; i < kTimeClasses; ++i) means[i] += part[i] / 37.0;
  }
  for (size_t i = 0; i < kTimeClasses; ++i) {
    EXPECT_NEAR(means[i], ledger.share(static_cast<TimeClass>(i)), 1e-6);
  }
  EXPECT_EQ(ledger.steps_redone, 100);
  EXPECT_EQ(ledger.steps_counted, 10);
}

TEST(Goodput, OfTheAllocationCountsIdleTimeAndLeavesTheQueueOut) {
  MadeUpRun run(3);
  run.supervisor_starts();
  run.start();
  run.step();
  run.end();
  run.supervisor_ends();
  run.idle();
  run.supervisor_starts();
  run.start();
  run.step();
  run.end();
  run.supervisor_ends();
  run.wait_in_queue();
  run.supervisor_starts();
  run.start();
  run.step();
  const Ledger ledger = make_ledger(run.records, run.events, std::nullopt);
  EXPECT_GE(ledger.seconds(TimeClass::Idle), 1.0);
  EXPECT_GE(ledger.seconds(TimeClass::Waiting), 1.0);
  EXPECT_DOUBLE_EQ(ledger.goodput_of_allocation(),
                   ledger.seconds(TimeClass::Compute) /
                       (ledger.total_seconds() - ledger.seconds(TimeClass::Waiting)));
}

TEST(Goodput, OfNothingIsEmpty) {
  const Ledger ledger = make_ledger({}, {}, std::nullopt);
  EXPECT_EQ(ledger.total_micros(), 0);
  EXPECT_TRUE(std::isnan(ledger.goodput()));
  EXPECT_TRUE(std::isnan(ledger.goodput_of_allocation()));
  EXPECT_EQ(ledger_parts(ledger, 3)[1][0], 0.0);
}

TEST(Goodput, APauseIsNotOtherTime) {
  MadeUpRun run(1);
  run.start();
  run.step();
  Ledger before = make_ledger(run.records, run.events, std::nullopt);
  const double paused = static_cast<double>(run.now) * 1e-6;
  run.events.push_back({"signal", paused, Json{{"file", "PAUSE"}}});
  run.events.push_back({"checkpoint", paused + 20.0, Json{{"step", 9}, {"stall", 2.0}}});
  const Ledger ledger = make_ledger(run.records, run.events, paused + 50.0);
  EXPECT_NEAR(ledger.seconds(TimeClass::Save), 2.0, 1e-5);
  run.events.push_back({"resumed", paused + 30.0, Json::object()});
  EXPECT_NEAR(
      make_ledger(run.records, run.events, paused + 50.0).seconds(TimeClass::Paused),
      28.0, 1e-5);
  EXPECT_NEAR(ledger.seconds(TimeClass::Paused), 48.0, 1e-5);
  EXPECT_NEAR(ledger.seconds(TimeClass::Compute), before.seconds(TimeClass::Compute),
              1e-5);
}

TEST(Goodput, NodeSecondsCountTheNodesOfEachStartAndNothingBetweenJobs) {
  const auto start = [](double at, int attempt, int64_t nodes, const char* job) {
    return Event{"start",
                 at,
                 {{"attempt", attempt},
                  {"step", 0},
                  {"job", job},
                  {"seconds", 10.0},
                  {"nodes", nodes}}};
  };
  const auto end = [](double at, int attempt) {
    return Event{"end", at, {{"attempt", attempt}, {"step", 5}}};
  };
  // 110 s with 4 nodes, 190 s in the queue, and 60 s with 2 nodes until now.
  std::vector<Event> events = {start(1000.0, 1, 4, "7"), end(1100.0, 1),
                               start(1300.0, 2, 2, "8")};
  const Records none;
  const auto counted = [&] {
    return node_seconds(make_ledger(none, events, 1350.0), events);
  };
  EXPECT_NEAR(counted(), 4 * 110.0 + 2 * 60.0, 1e-3);
  // In one job nobody else has the nodes in between.
  events[2] = start(1300.0, 2, 2, "7");
  EXPECT_NEAR(counted(), 4 * 300.0 + 2 * 60.0, 1e-3);
  // An older release did not say how many nodes there were.
  events[0].fields["nodes"] = 0;
  events[2] = start(1300.0, 2, 2, "8");
  EXPECT_NEAR(counted(), 2 * 110.0 + 2 * 60.0, 1e-3);
}

TEST(Goodput, ASuspensionIsTakenOutOfTheStepThatItStopped) {
  MadeUpRun run(1);
  run.start();
  run.step();
  const double now = static_cast<double>(run.now) * 1e-6;
  const Ledger before = make_ledger(run.records, run.events, now);
  const double half = before.seconds(TimeClass::Compute) / 2.0;
  ASSERT_GT(half, 0.0);
  run.events.push_back({"suspended", now + 1.0, Json{{"seconds", half}, {"until", now}}});
  const Ledger ledger = make_ledger(run.records, run.events, now + 1.0);
  expect_tiles(ledger);
  EXPECT_NEAR(ledger.seconds(TimeClass::Suspended), half, 1e-5);
  EXPECT_NEAR(ledger.seconds(TimeClass::Compute), half, 1e-5);
  EXPECT_NEAR(ledger.total_seconds(), before.total_seconds() + 1.0, 1e-5);
  const double allocated =
      ledger.total_seconds() - ledger.seconds(TimeClass::Waiting) - half;
  EXPECT_NEAR(ledger.goodput_of_allocation(), half / allocated, 1e-5);
}

}  // namespace
}  // namespace longhaul::monitor
