#include "longhaul/comm/device_communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "tests/support/conformance.h"
#include "tests/support/fake_device.h"

namespace longhaul::comm {
namespace {

using layout::Uses;

/// One value for each rank that outlives the ranks: an operation that failed is still
/// under way, and the other rank may read the value after the body of this rank has
/// ended.
template <typename T>
struct Lasting : std::array<T, 2> {
  T& operator[](int rank) { return this->at(static_cast<size_t>(rank)); }
};

using Case = std::tuple<int, int, Conformance>;
class DeviceGroup : public testing::TestWithParam<Case> {};

TEST_P(DeviceGroup, Conforms) {
  const auto& [ranks, polls, conformance] = GetParam();
  run_fake_devices(
      ranks,
      [&](DeviceCommunicator& group, FakeDevice& fake) {
        conformance.check(group);
        EXPECT_EQ(fake.sent_alone, 0);
      },
      {}, [&](FakeDevice& fake, int) { fake.polls_in_progress = polls; });
}

INSTANTIATE_TEST_SUITE_P(FakeCalls, DeviceGroup,
                         testing::Combine(testing::Values(1, 3), testing::Values(0, 2),
                                          testing::ValuesIn(conformance_checks())),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::get<2>(tested.param).name + "_" +
                                  std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) > 0 ? "_in_progress" : "");
                         });

template <typename Work>
std::string failure_of(const Work& work) {
  try {
    work();
  } catch (const TemporaryError& error) {
    return error.what();
  }
  return "nothing thrown";
}

void expect_start(const std::string& text, const std::string& expected) {
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

TEST(DeviceGroupFailure, ADeadlineNamesTheOperation) {
  CommOptions limits;
  limits.deadline_seconds = 0.2;
  Lasting<float> xs{1.0F, 1.0F};
  run_fake_devices(
      2,
      [&](DeviceCommunicator& group, FakeDevice& fake) {
        fake.stalls = true;
        group.ledger().set("backward", 12);
        const Label label(group.ledger(), "gradient bucket 3");
        float& x = xs[group.rank()];
        const WorkPtr work = group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
        EXPECT_EQ(group.ledger().under_way(), 1);
        expect_start(failure_of([&] { work->wait(); }),
                     "[comm] step 12 phase backward: all_reduce number 1 (4 bytes) on "
                     "'world' [gradient bucket 3], rank " +
                         std::to_string(group.rank()) +
                         " of 2, did not end within 0.2 s");
      },
      limits);
}

TEST(DeviceGroupFailure, AnErrorOfTheLibraryEndsTheWaitAtOnce) {
  Lasting<float> xs{1.0F, 1.0F};
  run_fake_devices(2, [&](DeviceCommunicator& group, FakeDevice& fake) {
    float& x = xs[group.rank()];
    const WorkPtr work = group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
    fake.stalls = true;
    fake.fails_with = 6;
    const auto start = std::chrono::steady_clock::now();
    expect_start(failure_of([&] { work->wait(); }),
                 "[comm] all_reduce number 1 (4 bytes) on 'world', rank " +
                     std::to_string(group.rank()) + " of 2, failed: fake: result 6");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  });
}

TEST(DeviceGroupFailure, ACallThatFailsLateIsToldBeforeAnythingFollows) {
  Lasting<double> xs{1.0, 1.0};
  run_fake_devices(2, [&](DeviceCommunicator& group, FakeDevice& fake) {
    fake.polls_in_progress = 3;
    fake.fails_with = 2;
    double& x = xs[group.rank()];
    const int events = fake.made_events;
    expect_start(failure_of([&] { group.broadcast({&x, 1, format::DType::F64}, 0); }),
                 "[comm] broadcast number 1 (8 bytes) on 'world', rank " +
                     std::to_string(group.rank()) + " of 2, failed: fake: result 2");
    EXPECT_EQ(fake.made_events,
              events + 1);  // the event before the call, and none behind it
  });
}

TEST(DeviceGroupFailure, ACallThatNeverSettlesMeetsTheDeadline) {
  CommOptions limits;
  limits.deadline_seconds = 0.2;
  run_fake_devices(
      1,
      [](DeviceCommunicator& group, FakeDevice& fake) {
        fake.polls_in_progress = 1 << 30;
        float x = 1.0F;
        EXPECT_NE(failure_of([&] {
                    group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
                  }).find("did not end within 0.2 s"),
                  std::string::npos);
      },
      limits);
}

TEST(DeviceGroupFailure, ARankThatHurriesWaitsAsLongAsThatAllows) {
  CommOptions limits;
  limits.deadline_seconds = 30.0;
  limits.hurry_seconds = 0.2;
  bool hurries = false;
  limits.hurries = [&] { return hurries; };
  run_fake_devices(
      1,
      [&](DeviceCommunicator& group, FakeDevice& fake) {
        float x = 1.0F;
        fake.stalls = true;
        const WorkPtr work = group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
        hurries = true;
        EXPECT_NE(failure_of([&] { work->wait(); }).find("did not end within 0.2 s"),
                  std::string::npos);
        fake.polls_in_progress = 1 << 30;
        EXPECT_NE(failure_of([&] {
                    group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
                  }).find("did not end within 0.2 s"),
                  std::string::npos);
      },
      limits);
}

TEST(DeviceGroupFailure, AJobThatEndsEndsTheWait) {
  CommOptions limits;
  limits.deadline_seconds = 30.0;
  limits.job_ends = [] { return std::string("the end"); };
  run_fake_devices(
      1,
      [](DeviceCommunicator& group, FakeDevice& fake) {
        fake.stalls = true;
        float x = 1.0F;
        const WorkPtr work = group.all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum);
        EXPECT_EQ(failure_of([&] { work->wait(); }),
                  "[comm] all_reduce number 1 (4 bytes) on 'world', rank 0 of 1, was "
                  "under way: the end");
      },
      limits);
}

TEST(DeviceGroupFailure, WithoutAUniqueIdEveryRankIsTold) {
  std::mutex mutex;
  int told = 0;
  EXPECT_THROW(run_fake_devices(
                   3, [](DeviceCommunicator&, FakeDevice&) { FAIL() << "made"; }, {},
                   [&](FakeDevice& fake, int) {
                     fake.knows_ids = false;
                     const std::lock_guard lock(mutex);
                     ++told;
                   }),
               TemporaryError);
  EXPECT_EQ(told, 3);
}

TEST(DeviceGroupFailure, ADeviceThatIsAbsentIsTold) {
  const auto fake = std::make_shared<FakeDevice>(std::make_shared<FakeMeeting>());
  const std::shared_ptr<Communicator> alone = fake_world(1)[0];
  EXPECT_NE(failure_of([&] {
              DeviceCommunicator(fake, alone, 3, {});
            }).find("choosing the device failed: error 101"),
            std::string::npos);
}

/// A clock on which a microsecond passes from one question to the next, and which counts
/// the sleeps.
struct CountedSleeps {
  WaitClock::Clock::time_point now = {};
  std::vector<std::chrono::microseconds> sleeps = {};

  WaitClock clock() {
    return {[this] { return now += std::chrono::microseconds(1); },
            [this](std::chrono::microseconds time) {
              sleeps.push_back(time);
              now += time;
            }};
  }
};

TEST(DeviceWait, SleepsNotOnceInItsFirstMillisecond) {
  const auto sleeps_of = [](int questions) {
    CountedSleeps counted;
    int meanwhile = 0;
    wait_for_device([&] { return questions-- == 0; }, [&] { ++meanwhile; },
                    counted.clock());
    EXPECT_EQ(questions, -1);
    return counted.sleeps;
  };
  EXPECT_TRUE(sleeps_of(0).empty());
  EXPECT_TRUE(sleeps_of(900).empty());
  const auto sleeps = sleeps_of(1019);
  ASSERT_EQ(sleeps.size(), 20U);
  EXPECT_EQ(sleeps.front(), std::chrono::microseconds(5));
  EXPECT_EQ(sleeps.back(), std::chrono::microseconds(200));
}

TEST(DeviceGroupStreams, ACallThatIsInProgressForSomeMicrosecondsCostsNoSleep) {
  // Each rank is a thread with a clock of its own.
  std::array<CountedSleeps, 2> counted;
  const auto meeting = std::make_shared<FakeMeeting>();
  run_fake_ranks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto fake = std::make_shared<FakeDevice>(meeting);
    fake->polls_in_progress = 30;
    DeviceOptions options;
    options.clock = counted.at(static_cast<size_t>(world->rank())).clock();
    DeviceCommunicator group(fake, world, /*device=*/7, options);
    std::vector<float> x(100, 1.0F);
    const int peer = 1 - group.rank();
    const auto kind = peer == 1 ? Transfer::Kind::Send : Transfer::Kind::Recv;
    for (int i = 0; i < 5; ++i) {
      group.all_reduce({x.data(), 100, format::DType::F32}, ReduceOp::Sum);
      group.send_recv({{kind, peer, {x.data(), 100, format::DType::F32}}});
    }
    EXPECT_TRUE(counted.at(static_cast<size_t>(group.rank())).sleeps.empty());
    fake->polls_in_progress = 0;
    while (group.ledger().under_way() > 0) group.progress();
    group.barrier_wait();
  });
}

TEST(DeviceGroupOpening, AGroupHasTheCommunicatorsOfItsUses) {
  for (const auto& [uses, expected] :
       {std::pair(Uses::Collectives, 1U), std::pair(Uses::Transfers, 1U),
        std::pair(Uses::Both, 2U)}) {
    DeviceOptions options;
    options.uses = uses;
    options.most_blocks = 16;
    run_fake_devices(
        2,
        [&](DeviceCommunicator&, FakeDevice& fake) {
          ASSERT_EQ(fake.made.size(), expected);
          EXPECT_EQ(fake.made[0].most_blocks, 16);
          EXPECT_EQ(fake.made[0].ids.size(), 1U);
        },
        {}, {}, options);
  }
}

TEST(DeviceGroupOpening, AGroupForTransfersOpensForItsFirstCollective) {
  DeviceOptions options;
  options.uses = Uses::Transfers;
  run_fake_devices(
      2,
      [](DeviceCommunicator& group, FakeDevice& fake) {
        float x = 1.0F;
        const auto kind = group.rank() == 0 ? Transfer::Kind::Send : Transfer::Kind::Recv;
        group.send_recv({{kind, 1 - group.rank(), {&x, 1, format::DType::F32}}})->wait();
        EXPECT_EQ(fake.made.size(), 1U);
        for (int i = 0; i < 2; ++i) {
          group.all_reduce_wait({&x, 1, format::DType::F32}, ReduceOp::Sum);
        }
        EXPECT_EQ(x, 4.0F);
        EXPECT_EQ(fake.made.size(), 2U);
      },
      {}, {}, options);
}

TEST(DeviceGroupOpening, AGroupForCollectivesRefusesTransfers) {
  DeviceOptions options;
  options.uses = Uses::Collectives;
  run_fake_devices(
      2,
      [](DeviceCommunicator& group, FakeDevice&) {
        float x = 1.0F;
        const auto kind = group.rank() == 0 ? Transfer::Kind::Send : Transfer::Kind::Recv;
        EXPECT_THROW(
            group.send_recv({{kind, 1 - group.rank(), {&x, 1, format::DType::F32}}}),
            Error);
      },
      {}, {}, options);
}

TEST(DeviceGroupOpening, AllAreBegunBeforeTheFirstIsWaitedFor) {
  const auto meeting = std::make_shared<FakeMeeting>();
  run_fake_ranks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto fake = std::make_shared<FakeDevice>(meeting);
    fake->polls_in_progress = 3;
    DeviceOptions options;
    options.opens_later = true;
    std::vector<std::unique_ptr<DeviceCommunicator>> groups;
    std::vector<DeviceCommunicator*> all;
    for (int i = 0; i < 3; ++i) {
      groups.push_back(std::make_unique<DeviceCommunicator>(fake, world, 7, options));
      all.push_back(groups.back().get());
    }
    EXPECT_TRUE(fake->made.empty());
    DeviceCommunicator::open(all);
    EXPECT_EQ(fake->made.size(), 6U);
    ASSERT_GT(fake->openings.size(), 6U);
    for (size_t i = 0; i < fake->openings.size(); ++i) {
      EXPECT_EQ(fake->openings[i], i < 6 ? "begin" : "wait") << i;
    }
    float x = 1.0F;
    all.back()->all_reduce_wait({&x, 1, format::DType::F32}, ReduceOp::Sum);
    EXPECT_EQ(x, 2.0F);
    world->barrier_wait();
  });
}

TEST(DeviceGroupOpening, TheLibrarysMemoryIsThatOfBothCommunicatorsIfItTells) {
  run_fake_devices(1, [](DeviceCommunicator& group, FakeDevice& fake) {
    EXPECT_EQ(group.device_bytes(), std::nullopt);
    fake.bytes_of_each = 1000;
    EXPECT_EQ(group.device_bytes(), 2000U);
  });
}

TEST(DeviceGroupOpening, RanksOfALargeGroupMeetBySeveralIds) {
  run_fake_devices(
      5,
      [](DeviceCommunicator&, FakeDevice& fake) {
        ASSERT_EQ(fake.made.size(), 2U);
        for (const DeviceApi::Members& members : fake.made) {
          ASSERT_EQ(members.ids.size(), 3U);
          EXPECT_NE(members.ids[0], members.ids[1]);
          EXPECT_NE(members.ids[1], members.ids[2]);
        }
      },
      {}, [](FakeDevice& fake, int) { fake.ids_for = 2; });
}

TEST(DeviceGroupStreams, OperationsBeginAfterTheCallersAndEventsAreUsedAgain) {
  run_fake_devices(2, [](DeviceCommunicator& group, FakeDevice& fake) {
    std::vector<float> x(100, 1.0F);
    for (int i = 0; i < 5; ++i) {
      group.all_reduce_wait({x.data(), 100, format::DType::F32}, ReduceOp::Sum);
    }
    EXPECT_EQ(fake.recorded_compute, 5);
    EXPECT_LE(fake.made_events, 2);
    group.all_reduce_wait({x.data(), 0, format::DType::F32}, ReduceOp::Sum);
    EXPECT_EQ(fake.log.size(),
              5U);  // an operation without bytes does not reach the library
  });
}

TEST(DeviceGroupStreams, TransfersHaveTheirOwn) {
  run_fake_devices(2, [](DeviceCommunicator& group, FakeDevice& fake) {
    float x = 1.0F;
    group.all_reduce_wait({&x, 1, format::DType::F32}, ReduceOp::Sum);
    const auto kind = group.rank() == 0 ? Transfer::Kind::Send : Transfer::Kind::Recv;
    group.send_recv({{kind, 1 - group.rank(), {&x, 1, format::DType::F32}}})->wait();
    ASSERT_EQ(fake.collective_streams.size(), 1U);
    ASSERT_EQ(fake.transfer_streams.size(), 1U);
    EXPECT_NE(*fake.collective_streams.begin(), *fake.transfer_streams.begin());
  });
}

TEST(DeviceGroupStreams, AnOrderedOperationMakesTheStreamWaitAndNotTheHost) {
  CommOptions limits;
  limits.deadline_seconds = 30.0;
  const auto ordered = [](DeviceCommunicator& group, FakeDevice& fake) {
    std::vector<float> x(100, 1.0F);
    fake.stalls = true;
    group.all_reduce_order({x.data(), 100, format::DType::F32}, ReduceOp::Sum);
    EXPECT_EQ(fake.compute_waits, 1);
    EXPECT_EQ(group.ledger().under_way(), 1);  // the host has gone on
    DeviceApi::Event behind = nullptr;
    fake.create_event(behind);
    fake.record(behind, nullptr);
    bool done = true;
    fake.is_done(behind, done);
    EXPECT_FALSE(done);  // the caller's next work comes after the operation
    fake.stalls = false;
    while (!done) fake.is_done(behind, done);
    EXPECT_EQ(x[0], 2.0F);
    while (group.ledger().under_way() > 0) group.progress();
    group.barrier_wait();
  };
  run_fake_devices(2, ordered, limits);
}

TEST(DeviceGroupStreams, AReceiveHoldsUpTheSendsBehindIt) {
  CommOptions limits;
  limits.deadline_seconds = 0.3;
  Lasting<float> sent{1.0F, 2.0F};
  Lasting<float> received{0.0F, 0.0F};
  run_fake_devices(
      2,
      [&](DeviceCommunicator& group, FakeDevice&) {
        const int peer = 1 - group.rank();
        ASSERT_TRUE(group.transfers_in_order());
        const WorkPtr receive =
            group.send_recv({{Transfer::Kind::Recv,
                              peer,
                              {&received[group.rank()], 1, format::DType::F32}}});
        const WorkPtr send = group.send_recv(
            {{Transfer::Kind::Send, peer, {&sent[group.rank()], 1, format::DType::F32}}});
        EXPECT_NE(failure_of([&] {
                    receive->wait();
                  }).find("send_recv number 1 (4 bytes) on 'world'"),
                  std::string::npos);
      },
      limits);
}

TEST(DeviceGroupFailure, WhatNobodyWaitsForIsToldToWhomeverWaitsForTheDevice) {
  Lasting<float> xs{1.0F, 1.0F};
  run_fake_devices(2, [&](DeviceCommunicator& group, FakeDevice& fake) {
    fake.stalls = true;
    group.all_reduce_order({&xs[group.rank()], 1, format::DType::F32}, ReduceOp::Sum);
    group.progress();  // nothing is wrong yet
    fake.fails_with = 6;
    EXPECT_NE(failure_of([&] { group.progress(); }).find("failed: fake: result 6"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace longhaul::comm
