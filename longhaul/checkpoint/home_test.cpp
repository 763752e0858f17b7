#include "longhaul/checkpoint/home.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/run/files.h"
#include "tests/support/rank_threads.h"
#include "tests/support/weights_files.h"

namespace longhaul::checkpoint {
namespace {

using testing::run_ranks;
using testing::TempDir;
using testing::write_file;

constexpr int kNodes = 3;
const std::string kThisRun(32, 'a');
const std::string kOtherRun(32, 'b');

/// One directory for each rank. It stands for what the rank's machine sees at a path that
/// is the same on all ranks.
class NodesDirectories {
 public:
  fs::path of(int rank) const { return dir_ / std::to_string(rank); }
  fs::path made(int rank) const {
    fs::create_directories(of(rank));
    return of(rank);
  }
  void give_run(int rank, const std::string& run) const {
    run::RunPast record;
    record.run = run;
    record.write(made(rank));
  }
  void give_marker(int rank, const std::string& run) const {
    run::mark_checkpoints(made(rank), {run, 0, {}});
  }

 private:
  TempDir dir_;
};

std::string failure_on_nodes(const std::function<void(comm::Communicator&)>& body) {
  return message_of<TemporaryError>([&] { run_ranks(kNodes, body); });
}

TEST(Home, ARunDirectoryThatRankZeroAloneHasLostIsNoNewRun) {
  const NodesDirectories machines;
  const auto find = [&](comm::Communicator& world) {
    EXPECT_FALSE(find_run(machines.of(world.rank()), world));
  };
  run_ranks(kNodes, find);  // no rank has an identity
  machines.give_run(2, kThisRun);
  const std::string message = failure_on_nodes(find);
  EXPECT_HAS(message, "rank 0 of 3 on " + host_name() + " does not find " +
                          (machines.of(2) / run::kRunPastFile).string());
  EXPECT_HAS(message, "where rank 2 of 3 on " + host_name() + " finds it");
  machines.give_run(0, kThisRun);
  run_ranks(kNodes, [&](comm::Communicator& world) {
    EXPECT_EQ(find_run(machines.of(world.rank()), world), kThisRun);
  });
}

TEST(Home, TheRankWhoseRunDirectoryIsAnotherIsNamedWithItsPath) {
  const NodesDirectories machines;
  for (int rank = 0; rank < kNodes; ++rank) machines.give_run(rank, kThisRun);
  const auto prove = [&](comm::Communicator& world) {
    prove_run_dir(machines.of(world.rank()), kThisRun, 0.0, world);
  };
  run_ranks(kNodes, prove);
  machines.give_run(1, kOtherRun);
  EXPECT_HAS(failure_on_nodes(prove), "rank 1 of 3 on " + host_name() +
                                          " finds another run's " +
                                          (machines.of(1) / run::kRunPastFile).string());
  fs::remove_all(machines.of(1));
  EXPECT_HAS(failure_on_nodes(prove), "rank 1 of 3 on " + host_name() +
                                          " does not find " +
                                          (machines.of(1) / run::kRunPastFile).string());
}

TEST(Home, ANameThatWasJustMadeMayComeLate) {
  const NodesDirectories machines;
  for (int rank = 0; rank < kNodes; ++rank) machines.made(rank);
  run_ranks(kNodes, [&](comm::Communicator& world) {
    if (world.rank() == 0) {
      machines.give_marker(0, kThisRun);
      std::thread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        machines.give_marker(1, kThisRun);
        machines.give_marker(2, kThisRun);
      });
      prove_checkpoints_dir(machines.of(0), kThisRun, 60.0, world);
      late.join();
      return;
    }
    prove_checkpoints_dir(machines.of(world.rank()), kThisRun, 60.0, world);
  });
  fs::remove_all(machines.of(2));
  EXPECT_HAS(failure_on_nodes([&](comm::Communicator& world) {
               prove_checkpoints_dir(machines.of(world.rank()), kThisRun, 0.01, world);
             }),
             "rank 2 of 3");
}

TEST(Home, CheckpointsThatAnyOtherRankSeesAreNotGone) {
  const NodesDirectories machines;
  const auto confirm = [&](comm::Communicator& world) {
    confirm_missing(machines.of(world.rank()), kThisRun, world);
  };
  machines.give_marker(1, kOtherRun);
  run_ranks(kNodes, confirm);  // the checkpoints of another run do not count
  machines.give_marker(2, kThisRun);
  EXPECT_HAS(failure_on_nodes(confirm), "rank 0 of 3 on " + host_name() +
                                            " does not find this run's checkpoints in " +
                                            machines.of(2).string());
  // An older release wrote no marker. Then any manifest in the directory counts.
  fs::remove_all(machines.of(2));
  write_file(machines.made(2) / "step_00000005" / run::kManifestFile, "{}");
  EXPECT_HAS(failure_on_nodes(confirm), "where rank 2 of 3");
}

}  // namespace
}  // namespace longhaul::checkpoint
