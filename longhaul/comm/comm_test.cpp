#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"
#include "longhaul/system/signals.h"
#include "tests/support/conformance.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::comm {
namespace {

using Case = std::tuple<int, bool, Conformance>;
class Backends : public testing::TestWithParam<Case> {};

TEST_P(Backends, Conforms) {
  const auto& [ranks, tiny, conformance] = GetParam();
  const CommOptions options = tiny ? tiny_messages() : CommOptions{};
  if (ranks == 1) {
    conformance.check(*self_world("world", options));
  } else {
    run_fake_ranks(
        ranks, [&check = conformance.check](const auto& world) { check(*world); },
        options);
  }
}

INSTANTIATE_TEST_SUITE_P(SelfAndFake, Backends,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool(),
                                          testing::ValuesIn(conformance_checks())),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::get<2>(tested.param).name + "_" +
                                  std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) ? "_tiny" : "");
                         });

/// Starts an operation on every rank of a world, and drives all ranks from this thread
/// until the operation has ended.
void play(const std::vector<std::shared_ptr<Communicator>>& world,
          const std::function<WorkPtr(Communicator&)>& start) {
  std::vector<WorkPtr> works;
  for (const auto& rank : world) works.push_back(start(*rank));
  while (!works.empty()) {
    std::erase_if(works, [](const WorkPtr& work) { return work->test(); });
  }
}

class Tree : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  /// Returns how many messages a rank may send in an operation.
  int logarithm() const {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks() - 1)));
  }
};

TEST_P(Tree, AddsInRankOrder) {
  const auto world = fake_world(ranks());
  constexpr int64_t kNumbers = 300;
  // In another order these numbers have another sum.
  const auto number = [](int rank, int64_t i) {
    return std::exp2(static_cast<double>((23 * rank + i) % 60)) / (3.0 + rank);
  };
  std::vector<double> expected(kNumbers);
  std::vector<std::vector<double>> x(static_cast<size_t>(ranks()));
  for (int r = 0; r < ranks(); ++r) {
    for (int64_t i = 0; i < kNumbers; ++i) {
      x[static_cast<size_t>(r)].push_back(number(r, i));
      expected[static_cast<size_t>(i)] += number(r, i);
    }
  }
  play(world, [&](Communicator& rank) {
    return rank.all_reduce(
        {x[static_cast<size_t>(rank.rank())].data(), kNumbers, format::DType::F64},
        ReduceOp::Sum);
  });
  for (int r = 0; r < ranks(); ++r) {
    EXPECT_EQ(x[static_cast<size_t>(r)], expected) << "rank " << r;
    EXPECT_EQ(world[static_cast<size_t>(r)]->counts()[Verb::AllReduce].bytes,
              layout::sent_by_all_reduce(ranks(), r, kNumbers, 8))
        << "rank " << r;
  }
}

TEST_P(Tree, TheFourSmallSumsOfAStepAreFourLogarithmsOfMessages) {
  const auto world = fake_world(ranks());
  using format::DType;
  const std::tuple<int64_t, DType, ReduceOp> sums[] = {
      {3, DType::I64, ReduceOp::Sum},    // targets and the batch's hash
      {301, DType::F64, ReduceOp::Sum},  // the loss and the squares of the norm
      {7, DType::I64, ReduceOp::Max},    // memory of the phases
      {4, DType::I64, ReduceOp::Max}};   // signals and control files
  std::vector<std::vector<int64_t>> x(static_cast<size_t>(ranks()));
  for (const auto& [count, dtype, op] : sums) {
    for (size_t r = 0; r < x.size(); ++r) {
      x[r].assign(static_cast<size_t>(count), static_cast<int64_t>(r));
    }
    play(world, [&, count = count, dtype = dtype, op = op](Communicator& rank) {
      return rank.all_reduce({x[static_cast<size_t>(rank.rank())].data(), count, dtype},
                             op);
    });
    if (dtype != DType::I64) continue;
    const int64_t last = ranks() - 1;
    const int64_t expected = op == ReduceOp::Max ? last : last * ranks() / 2;
    for (const std::vector<int64_t>& one : x) EXPECT_EQ(one.back(), expected);
  }
  int64_t most = 0;
  for (const auto& rank : world) {
    most = std::max(most, rank->counts().total().messages);
  }
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 4 * logarithm());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Tree, testing::Values(2, 5, 7, 8, 64, 512));

TEST(DistinctTexts, AreSentOnceHoweverManyRanksHaveThem) {
  constexpr int kRanks = 8;
  constexpr size_t kLength = 1000;
  std::atomic<int64_t> sent = 0;
  run_fake_ranks(kRanks, [&](const std::shared_ptr<Communicator>& world) {
    const char letter = world->rank() == 5 ? 'b' : 'a';
    const std::vector<std::string> texts =
        distinct_texts(*world, std::string(kLength, letter));
    EXPECT_EQ(texts, (std::vector<std::string>{std::string(kLength, 'a'),
                                               std::string(kLength, 'b')}));
    sent += world->counts().total().bytes;
  });
  EXPECT_LT(sent, static_cast<int64_t>(2 * kRanks * kLength));
}

TEST(OnAllRanks, WithoutAFailureARankSendsTheLogarithmOfTheRanks) {
  run_fake_ranks(8, [](const std::shared_ptr<Communicator>& world) {
    on_all_ranks(*world, [] {});
    EXPECT_LE(world->counts().total().messages, 3);
  });
}

TEST(Deadline, NamesOperationNumberRankAndSeconds) {
  CommOptions options;
  options.deadline_seconds = 0.3;
  run_fake_ranks(3, [](const auto& world) { check_deadline(*world); }, options);
}

TEST(Deadline, RanksOutOfStepAreToldInsteadOfMixingTheirNumbers) {
  CommOptions options;
  options.deadline_seconds = 0.3;
  std::string message;
  try {
    run_fake_ranks(
        2,
        [](const auto& world) {
          float x = 1.0F;
          const WorkPtr skipped = world->rank() == 0 ? world->barrier() : nullptr;
          world->all_reduce({&x, 1, format::DType::F32}, ReduceOp::Sum)->wait();
        },
        options);
  } catch (const TemporaryError& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("all_reduce number"), std::string::npos) << message;
}

TEST(FakeRanks, AFailureOfOneEndsTheOthersAndIsTheOneReported) {
  try {
    run_fake_ranks(3, [](const auto& world) {
      if (world->rank() == 2) throw InputError("test", "rank two is unwell");
      world->barrier_wait();
    });
    FAIL() << "nothing thrown";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "[test] rank two is unwell");
  }
}

TEST(FakeRanks, CountsThatDisagreeAreAnError) {
  EXPECT_THROW(run_fake_ranks(
                   2,
                   [](const auto& world) {
                     std::vector<double> x(3);
                     world
                         ->broadcast({x.data(), 2 + world->rank(), format::DType::F64}, 0)
                         ->wait();
                   }),
               Error);
}

TEST(DoAndMeet, WorksOnAThreadOfEachRankAndTheFirstFailureIsThatOfAll) {
  run_fake_ranks(3, [](const std::shared_ptr<Communicator>& world) {
    const std::thread::id caller = std::this_thread::get_id();
    std::thread::id worker = caller;
    do_and_meet(*world, [&] { worker = std::this_thread::get_id(); }, {});
    EXPECT_NE(worker, caller);
    const auto fails = [&] {
      if (world->rank() > 0) fail_temporary("disk", "rank {} is full", world->rank());
    };
    try {
      do_and_meet(*world, fails, {});
      ADD_FAILURE() << "nothing was thrown on rank " << world->rank();
    } catch (const TemporaryError& error) {
      EXPECT_EQ(error.message(), "rank 1 is full");
    }
  });
}

TEST(DoAndMeet, ASignalStopsTheWorkOfEachRank) {
  const system::SignalWatch watch;
  std::raise(SIGTERM);
  run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    std::atomic<bool> stopped = false;
    const auto work = [&] {
      while (!stopped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    do_and_meet(*world, work, [&] { stopped = true; });
    EXPECT_TRUE(stopped);
  });
}

TEST(Threads, ASecondThreadIsRefused) {
  const auto world = self_world();
  world->barrier_wait();
  std::string message;
  std::thread([&] {
    try {
      world->barrier_wait();
    } catch (const Error& e) {
      message = e.what();
    }
  }).join();
  EXPECT_NE(message.find("two threads"), std::string::npos) << message;
}

Launch launched(const std::map<std::string, std::string>& environment) {
  return detect_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, IsReadFromTheLaunchersEnvironment) {
  EXPECT_FALSE(launched({}).several());
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_SIZE", "1"}}).several());
  const Launch mpirun = launched({{"OMPI_COMM_WORLD_SIZE", "8"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_TRUE(mpirun.by_launcher && mpirun.by_mpirun && mpirun.several());
  EXPECT_EQ(mpirun.ranks, 8);
  EXPECT_EQ(mpirun.local_rank, 3);
  EXPECT_EQ(mpirun.local_ranks, 4);
  const Launch srun = launched(
      {{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_LOCALID", "1"}});
  EXPECT_TRUE(srun.by_launcher && !srun.by_mpirun && srun.several());
  EXPECT_EQ(srun.ranks, 16);
  EXPECT_EQ(srun.local_rank, 1);
}

TEST(Launch, ABatchScriptIsOneProcess) {
  EXPECT_FALSE(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).by_launcher);
}

TEST(Launch, SrunWithoutPmixIsRefusedWithTheRemedy) {
  try {
    launched(
        {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}});
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("srun --mpi=pmix"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(launched({{"OMPI_COMM_WORLD_SIZE", "eight"}}), ConfigError);
}

}  // namespace
}  // namespace longhaul::comm
