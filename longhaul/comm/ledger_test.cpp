#include "longhaul/comm/ledger.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"
#include "longhaul/comm/hosts.h"
#include "longhaul/comm/mesh.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::comm {
namespace {

using World = std::shared_ptr<Communicator>;

TEST(Ledger, SumsWhatWasSentByTheNamesOfGroups) {
  run_fake_ranks(4, [](const World& world) {
    const Mesh mesh(world, {.dp = 2, .tp = 2});
    std::vector<float> x(256);
    std::vector<float> all(512);
    mesh.tp()
        .all_gather({x.data(), 256, format::DType::F32},
                    {all.data(), 512, format::DType::F32})
        ->wait();
    {
      // Groups of one name are summed, and groups that are gone count too.
      const auto again = world->split(world->rank() % 2, world->rank(), "tp");
      again
          ->all_gather({x.data(), 256, format::DType::F32},
                       {all.data(), 512, format::DType::F32})
          ->wait();
    }
    EXPECT_EQ(mesh.tp().counts()[Verb::AllGather], (VerbCount{1, 1024, 1}));
    const auto& counts = world->ledger().counts();
    EXPECT_EQ(counts.at("tp")[Verb::AllGather], (VerbCount{2, 2048, 2}));
    EXPECT_EQ(counts.at("tp").total(), (VerbCount{2, 2048, 2}));
    EXPECT_EQ(counts.at("dp").total(), VerbCount{});
    EXPECT_EQ(&mesh.tp().ledger(), &world->ledger());
  });
}

TEST(Ledger, WhatARankIsToldOfAnotherIsNotNotedAsItsOwnFailure) {
  const TestDirectory dir;
  run_fake_ranks(3, [&](const World& world) {
    const int rank = world->rank();
    world->ledger().attach(std::make_shared<run::RankRecord>(
        run::RankRecord::create(dir.path(), rank, world->size())));
    const auto told = [&] {
      return run::read_rank_record(run::rank_record_path(dir.path(), rank)).told;
    };
    const auto fail = [] { throw TemporaryError("file", "no room"); };
    EXPECT_THROW(on_all_ranks(*world, [&] { rank == 1 ? fail() : void(); }),
                 TemporaryError);
    EXPECT_EQ(told(), rank != 1);
    world->ledger().set("forward", 2);
    EXPECT_FALSE(told());
    EXPECT_THROW(on_rank_zero(*world, fail), TemporaryError);
    EXPECT_FALSE(told());
    EXPECT_THROW(on_all_ranks(*world, fail), TemporaryError);
    EXPECT_FALSE(told());
  });
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const TemporaryError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Ledger, ADeadlineNamesStepPhaseAndLabel) {
  CommOptions options;
  options.deadline_seconds = 0.2;
  run_fake_ranks(
      2,
      [](const World& world) {
        if (world->rank() == 1) return;
        world->ledger().set("backward", 12);
        WorkPtr work;
        {
          const Label outer(world->ledger(), "outer");
          const Label label(world->ledger(), "gradient bucket 3");
          work = world->barrier();
        }
        EXPECT_EQ(world->ledger().label(), "");
        const std::string text = failure_of([&] { work->wait(); });
        const std::string expected =
            "[comm] step 12 phase backward: barrier number 1 (0 bytes) on 'world' "
            "[gradient bucket 3], rank 0 of 2, did not end within 0.2 s";
        EXPECT_EQ(text.substr(0, expected.size()), expected);
      },
      options);
}

TEST(Ledger, ADeadPeerIsToldWithTheOperationThatWaitsForIt) {
  std::mutex mutex;
  std::string text;
  EXPECT_THROW(run_fake_ranks(3,
                              [&](const World& world) {
                                if (world->rank() == 2)
                                  throw InputError("test", "unwell");
                                const std::string mine =
                                    failure_of([&] { world->barrier_wait(); });
                                const std::lock_guard lock(mutex);
                                text = mine;
                              }),
               InputError);
  EXPECT_NE(text.find("barrier number 1 (0 bytes) on 'world', rank "), std::string::npos)
      << text;
  EXPECT_NE(text.find("failed: rank 2 aborted the group"), std::string::npos) << text;
}

TEST(Ledger, AJobThatEndsEndsAWaitByName) {
  std::atomic<bool> ends = false;
  CommOptions options;
  options.job_ends = [&ends]() -> std::string { return ends ? "the end" : ""; };
  run_fake_ranks(
      2,
      [&](const World& world) {
        world->barrier_wait();
        if (world->rank() == 1) return;
        world->ledger().set("forward", 3);
        ends = true;
        EXPECT_EQ(failure_of([&] { world->barrier_wait(); }),
                  "[comm] step 3 phase forward: barrier number 2 (0 bytes) on 'world', "
                  "rank 0 of 2, was under way: the end");
      },
      options);
}

TEST(Ledger, KnowsWhatIsUnderWay) {
  run_fake_ranks(2, [](const World& world) {
    const WorkPtr one = world->barrier();
    const WorkPtr two = world->barrier();
    two->wait();
    EXPECT_EQ(world->ledger().under_way(), 0);
    if (world->rank() == 0) {
      const WorkPtr alone = world->barrier();
      EXPECT_EQ(world->ledger().under_way(), 1);
    }
  });
}

TEST(Record, HoldsWhatARankWaitsForAndWhatItDid) {
  const TestDirectory dir;
  CommOptions options;
  options.deadline_seconds = 0.2;
  run_fake_ranks(
      2,
      [&](const World& world) {
        world->ledger().set("forward", 12);
        world->ledger().attach(std::make_shared<run::RankRecord>(
            run::RankRecord::create(dir.path(), world->rank(), 2)));
        const Mesh mesh(world, {.tp = 2});
        float x = 1.0F;
        {
          const Label label(world->ledger(), "loss");
          mesh.tp().all_reduce_wait({&x, 1, format::DType::F32}, ReduceOp::Sum);
        }
        if (world->rank() == 0) failure_of([&] { mesh.tp().barrier_wait(); });
      },
      options);
  std::vector<run::RankState> states;
  for (const int rank : {0, 1}) {
    states.push_back(run::read_rank_record(run::rank_record_path(dir.path(), rank)));
  }
  EXPECT_EQ(
      to_string(states[0], states[0].waits_since + 3),
      "rank 0 (pp 0 dp 0 cp 0 tp 0) step 12 phase forward: waits in barrier number 2 "
      "(0 bytes) on 'tp' for 3 s");
  EXPECT_FALSE(states[1].waits);
  const run::RecordedOperation& last = states[1].operations.back();
  EXPECT_EQ(to_string(last.name()), "all_reduce number 1 (4 bytes) on 'tp' [loss]");
  EXPECT_GT(last.ended, 0.0);
  EXPECT_EQ(states[0].operations.back().ended, 0.0);
}

TEST(Record, AFullRingSaysStillWhatIsWaitedFor) {
  const TestDirectory dir;
  CommOptions options;
  options.deadline_seconds = 0.2;
  run_fake_ranks(
      2,
      [&](const World& world) {
        if (world->rank() == 1) return;
        world->ledger().attach(
            std::make_shared<run::RankRecord>(run::RankRecord::create(dir.path(), 0, 2)));
        const WorkPtr first = world->barrier();
        std::vector<WorkPtr> more;
        for (int i = 0; i < 40; ++i) more.push_back(world->barrier());
        failure_of([&] { first->wait(); });
      },
      options);
  const run::RankState state =
      run::read_rank_record(run::rank_record_path(dir.path(), 0));
  EXPECT_EQ(state.waits_for.number, 1);
  EXPECT_EQ(state.operations.back().number, 41);
}

TEST(Record, QuestionsWhetherWorkHasEndedAreNoProgress) {
  const TestDirectory dir;
  run_fake_ranks(2, [&](const World& world) {
    const int rank = world->rank();
    Ledger& ledger = world->ledger();
    ledger.attach(
        std::make_shared<run::RankRecord>(run::RankRecord::create(dir.path(), rank, 2)));
    ledger.set("checkpoint", 12);
    const auto record = [&] {
      return run::read_rank_record(run::rank_record_path(dir.path(), rank));
    };
    const auto ask = [&] {
      int64_t one = 1;
      world->all_reduce_wait({&one, 1, format::DType::I64}, ReduceOp::Sum);
      return record();
    };
    {
      Polling polling(ledger, run::kSaveWaitPhase, {"checkpoint", "save", 12, 0, {}});
      polling.look(0, /*only_others=*/rank == 1);
      const run::RankState first = ask();
      EXPECT_EQ(first.phase, run::kSaveWaitPhase);
      EXPECT_EQ(first.waits, rank == 1);
      EXPECT_EQ(first.operations.size(), rank == 1 ? 1U : 0U);
      ::usleep(20'000);
      polling.look(0, rank == 1);
      EXPECT_EQ(ask().last_progress(), first.last_progress());
      // Work that goes on counts as progress.
      polling.look(1, rank == 1);
      EXPECT_GE(ask().last_progress(), first.last_progress() + 0.015);
    }
    const run::RankState after = ask();
    EXPECT_EQ(after.phase, "checkpoint");
    EXPECT_EQ(after.step, 12);
    EXPECT_FALSE(after.waits);
    EXPECT_EQ(after.operations.back().verb, "all_reduce");
    EXPECT_TRUE(after.longest_phases.contains(std::string(run::kSaveWaitPhase)));
  });
}

TEST(Hosts, RanksOfOneMachineFindEachOtherInOrder) {
  run_fake_ranks(5, [](const World& world) {
    const int rank = world->rank();
    const auto node = split_by_host(*world, "node", rank % 2 == 0 ? "even" : "odd");
    EXPECT_EQ(node->size(), rank % 2 == 0 ? 3 : 2);
    EXPECT_EQ(node->rank(), rank / 2);
    EXPECT_EQ(node->name(), "node");
    int64_t sum = rank;
    node->all_reduce_wait({&sum, 1, format::DType::I64}, ReduceOp::Sum);
    EXPECT_EQ(sum, rank % 2 == 0 ? 6 : 4);
  });
}

TEST(Hosts, ThreadsOfThisMachineShareIt) {
  EXPECT_GT(machine_name().size(), 30U);
  run_fake_ranks(
      3, [](const World& world) { EXPECT_EQ(split_by_host(*world, "node")->size(), 3); });
}

}  // namespace
}  // namespace longhaul::comm
