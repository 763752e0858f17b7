#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <mutex>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/memory/keeper.h"
#include "longhaul/checkpoint/memory/memory_directory.h"
#include "longhaul/checkpoint/memory/survey.h"
#include "longhaul/checkpoint/read/node_reader.h"
#include "tests/support/rank_threads.h"
#include "tests/support/weights_files.h"

namespace longhaul::checkpoint {
namespace {

using testing::run_ranks;
using testing::TempDir;

const std::string kRun(kRunKeyDigits, 'a');
constexpr int kRanks = 4;

/// Returns a tensor with several blocks for each rank.
format::TensorSlice embedding() {
  return format::TensorSlice::whole("embed.weight", {3000, 600}, format::DType::F32);
}
format::TensorSlice norm() {
  return format::TensorSlice::whole("norm.weight", {301}, format::DType::F32);
}

float element(const std::string& name, int64_t index, int64_t step) {
  return static_cast<float>(index % 100'003) +
         0.25F * static_cast<float>(step) * static_cast<float>(name.size());
}

/// A rank's share of the state at a step.
struct Share {
  std::vector<std::vector<float>> values;
  std::vector<StateTensor> tensors;
};

struct Range {
  int64_t begin;
  int64_t end;
};
Range range_of(const format::TensorSlice& tensor, int rank, int ranks) {
  const int64_t n = tensor.num_elements();
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

Share share_of(int rank, int ranks, int64_t step) {
  Share share;
  for (const format::TensorSlice& tensor : {embedding(), norm()}) {
    const auto [begin, end] = range_of(tensor, rank, ranks);
    std::vector<float>& values = share.values.emplace_back();
    for (int64_t i = begin; i < end; ++i) {
      values.push_back(element(tensor.name, i, step));
    }
    append_flat_range(kWeight, tensor, begin, end, std::as_bytes(std::span(values)),
                      share.tensors);
  }
  return share;
}

std::string state_of(int64_t step) { return R"({"step": )" + std::to_string(step) + "}"; }

/// Machines that are directories; each of `ranks` ranks lives on one of them.
struct Cluster {
  TempDir dir;
  int per_machine = 1;

  std::string machine(int rank) const { return "n" + std::to_string(rank / per_machine); }
  fs::path memory(const std::string& machine) const {
    return dir / machine / "run_0123456789abcdef";
  }
  void start_machines(int ranks) const {
    for (int r = 0; r < ranks; ++r) {
      fs::create_directories(dir / machine(r));
      fs::permissions(dir / machine(r), fs::perms::owner_all);
    }
  }
  /// Removes the memory of a machine.
  void lose(const std::string& name) const { fs::remove_all(dir / name); }

  KeeperOptions keeper_options(const comm::Communicator& world, int attempt) const {
    KeeperOptions options;
    options.machine = machine(world.rank());
    options.dir = memory(options.machine);
    options.run = kRun;
    options.attempt = attempt;
    options.threads = 2;
    options.replaces = attempt > 1;
    return options;
  }

  /// Simulates a start that keeps some steps and then dies.
  void keep(int ranks, const std::vector<int64_t>& steps, int attempt = 1) const {
    start_machines(ranks);
    run_ranks(ranks, [&](comm::Communicator& world) {
      const Share share = share_of(world.rank(), ranks, 0);
      MemoryKeeper keeper(keeper_options(world, attempt), share.tensors, 20, world);
      for (const int64_t step : steps) {
        const Share now = share_of(world.rank(), ranks, step);
        EXPECT_TRUE(keeper.keep(step, state_of(step), now.tensors).whole);
        // The tensors are freed at the end of the loop's body. Messages under way read a
        // copy of the tensors.
        world.barrier_wait();
      }
      // Waits for the last copy to arrive.
      keeper.settle();
    });
  }

  struct Found {
    std::optional<MemoryStep> step;
    std::vector<std::string> notes;
  };
  /// Returns what a new start of `ranks` ranks finds, and checks the values of the found
  /// step.
  Found find(int ranks, const std::function<void(SurveyOptions&)>& change = {}) const {
    Found found;
    std::mutex mutex;
    start_machines(ranks);
    run_ranks(ranks, [&](comm::Communicator& world) {
      SurveyOptions options;
      options.machine = machine(world.rank());
      options.dir = memory(options.machine);
      options.run = kRun;
      options.threads = 2;
      if (change) change(options);
      std::vector<std::string> notes;
      const auto step = find_in_memory(options, world, notes);
      if (step) check_values(*step, options.dir, world);
      const std::lock_guard lock(mutex);
      if (world.rank() > 0) return;
      found = {step, notes};
    });
    return found;
  }

  static void check_values(const MemoryStep& step, const fs::path& dir,
                           comm::Communicator& world) {
    EXPECT_EQ(step.state, state_of(step.step));
    const MemoryTensors stored(step, dir);
    std::vector<std::vector<float>> values;
    std::vector<ReadRequest> requests;
    for (const format::TensorSlice& tensor : {embedding(), norm()}) {
      const auto [begin, end] = range_of(tensor, world.rank(), world.size());
      std::vector<float>& out = values.emplace_back(static_cast<size_t>(end - begin));
      requests.push_back({kWeight, tensor, begin, end, format::DType::F32,
                          std::as_writable_bytes(std::span(out))});
    }
    const ReadReport report = total(read_together(stored, requests, world), world);
    EXPECT_EQ(report.wanted, 4U * static_cast<uint64_t>(embedding().num_elements() +
                                                        norm().num_elements()));
    for (size_t t = 0; t < requests.size(); ++t) {
      for (size_t i = 0; i < values[t].size(); ++i) {
        const int64_t at = requests[t].begin + static_cast<int64_t>(i);
        ASSERT_EQ(values[t][i], element(requests[t].slice.name, at, step.step));
      }
    }
  }
};

std::vector<fs::path> part_files(const Cluster& cluster, const std::string& pattern) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(cluster.dir.path())) {
    if (entry.path().string().find(pattern) != std::string::npos &&
        entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void flip_byte(const fs::path& path, int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 0x10));
}

bool has_note(const std::vector<std::string>& notes, const std::string& part) {
  return std::ranges::any_of(
      notes, [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

TEST(Holders, AreOnTheNextMachineAndShareTheWork) {
  const std::vector<std::string> even = {"a", "a", "b", "b", "c", "c"};
  EXPECT_EQ(choose_holders(even), (std::vector<int>{2, 3, 4, 5, 0, 1}));
  const std::vector<std::string> mixed = {"a", "b", "a", "a", "b"};
  EXPECT_EQ(choose_holders(mixed), (std::vector<int>{1, 0, 4, 1, 2}));
  EXPECT_TRUE(choose_holders({"a", "a", "a"}).empty());
}

TEST(PartNames, AreReadAsTheyAreWritten) {
  const PartName name{12, 1, 345678};
  const auto parsed = PartName::parse(name.text());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->attempt, 12);
  EXPECT_EQ(parsed->slot, 1);
  EXPECT_EQ(parsed->owner, 345678);
  for (const char* other :
       {"a1_s0_rank_00001.part.tmp", "a1_s0_rank_.part", "memory.json",
        "a_s0_rank_00001.part", "a-1_s0_rank_00001.part", ""}) {
    EXPECT_FALSE(PartName::parse(other)) << other;
  }
}

TEST(PeerMemory, TheNewestStepSurvivesTheLossOfAnyMachine) {
  for (const char* lost : {"none", "n0", "n1", "n2", "n3"}) {
    Cluster cluster;
    cluster.keep(kRanks, {3, 4, 5});
    cluster.lose(lost);
    const auto found = cluster.find(kRanks);
    ASSERT_TRUE(found.step) << lost;
    EXPECT_EQ(found.step->step, 5);
    EXPECT_EQ(found.step->attempt, 1);
    EXPECT_EQ(found.step->machines, lost == std::string("none") ? 4 : 3);
  }
}

TEST(PeerMemory, AnyLayoutAndAnyPlaceOfTheRanksReadsIt) {
  for (const int ranks : {1, 2, 3, 7}) {
    Cluster cluster;
    cluster.keep(kRanks, {8});
    // Each rank is alone on its machine, so it finds the files of that machine only.
    cluster.per_machine = 1;
    if (ranks < kRanks) {
      for (int m = ranks; m < kRanks; ++m) {
        const std::string gone = "n" + std::to_string(m);
        for (const fs::path& file : part_files(cluster, "/" + gone + "/")) {
          fs::create_directories(cluster.memory("n0"));
          fs::rename(file, cluster.memory("n0") / file.filename());
        }
      }
    }
    const auto found = cluster.find(ranks);
    ASSERT_TRUE(found.step) << ranks;
    EXPECT_EQ(found.step->step, 8);
  }
}

TEST(PeerMemory, TwoRanksOfAMachineAreKeptByTheTwoOfTheNext) {
  Cluster cluster;
  cluster.per_machine = 2;
  cluster.keep(8, {1, 2});
  EXPECT_EQ(list_part_names(cluster.memory("n0")).size(), 8U);  // 2 slots x (2 + 2)
  cluster.lose("n2");
  const auto found = cluster.find(8);
  ASSERT_TRUE(found.step);
  EXPECT_EQ(found.step->step, 2);
}

TEST(PeerMemory, TwoNeighboursLostIsSaidAndNothingIsFound) {
  Cluster cluster;
  cluster.keep(kRanks, {3, 4});
  cluster.lose("n1");
  cluster.lose("n2");
  const auto found = cluster.find(kRanks);
  EXPECT_FALSE(found.step);
  EXPECT_TRUE(has_note(found.notes, "step 4 in memory is not whole: 1 of 4 parts"))
      << found.notes.size();
}

TEST(PeerMemory, OfADamagedCopyTheOtherIsTakenAndOfTwoTheStepBefore) {
  Cluster cluster;
  cluster.keep(kRanks, {3, 4});
  // Step 4 is in slot 1. One copy is on n1, the other copy on n2.
  const auto files = part_files(cluster, "s1_rank_00001");
  ASSERT_EQ(files.size(), 2U);
  flip_byte(files[0], 1000);
  const auto one = cluster.find(kRanks);
  ASSERT_TRUE(one.step);
  EXPECT_EQ(one.step->step, 4);
  EXPECT_TRUE(has_note(one.notes, "COPY DAMAGED (rank 1)"));
  EXPECT_TRUE(has_note(one.notes, "a1_s1_rank_00001.part: block 1"));
  flip_byte(files[1], 900'000);
  const auto both = cluster.find(kRanks);
  ASSERT_TRUE(both.step);
  EXPECT_EQ(both.step->step, 3);
  EXPECT_TRUE(has_note(both.notes, "every copy of 1 of 4 parts is damaged"));
}

TEST(PeerMemory, EveryByteOfAPartIsCovered) {
  Cluster cluster;
  cluster.keep(2, {6});
  cluster.lose("n1");
  const auto files = part_files(cluster, "n0/");
  const auto size = static_cast<int64_t>(fs::file_size(files[0]));
  // The offsets lie in the seal, the text, the state, the table and the data.
  const PartShape shape = [&] {
    const PartReader part = PartReader::open(files[0]);
    return PartShape{part.text().size(), 2 * 20 + (64 << 10), part.data().size()};
  }();
  ASSERT_EQ(shape.file_bytes(), static_cast<uint64_t>(size));
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{13}, uint64_t{70}, uint64_t{4096}, shape.room_at() + 3,
        shape.table_at(), shape.data_at(), shape.file_bytes() - 1}) {
    flip_byte(files[0], size - static_cast<int64_t>(at));
    EXPECT_FALSE(cluster.find(2).step) << at;
    flip_byte(files[0], size - static_cast<int64_t>(at));
  }
  EXPECT_TRUE(cluster.find(2).step);
  fs::resize_file(files[0], static_cast<uint64_t>(size - 1));
  const auto cut = cluster.find(2);
  EXPECT_FALSE(cut.step);
  EXPECT_TRUE(has_note(cut.notes, "its seal says"));
}

TEST(PeerMemory, ADeathInTheMiddleOfACopyLeavesTheStepBefore) {
  Cluster cluster;
  cluster.start_machines(2);
  run_ranks(2, [&](comm::Communicator& world) {
    const Share before = share_of(world.rank(), 2, 0);
    MemoryKeeper keeper(cluster.keeper_options(world, 1), before.tensors, 20, world);
    keeper.keep(5, state_of(5), share_of(world.rank(), 2, 5).tensors);
    keeper.keep(6, state_of(6), share_of(world.rank(), 2, 6).tensors);
    keeper.settle();
  });
  // Makes both copies look as they do while rank 1 writes step 7: the seal is empty, and
  // part of the data is new.
  for (const fs::path& file : part_files(cluster, "s0_rank_00001")) {
    std::fstream part(file, std::ios::in | std::ios::out | std::ios::binary);
    part.write(std::string(64, '\0').data(), 64);
    part.seekp(200'000);
    part.write("new", 3);
  }
  const auto found = cluster.find(2);
  ASSERT_TRUE(found.step);
  EXPECT_EQ(found.step->step, 6);
  EXPECT_TRUE(has_note(found.notes, "was being written"));
}

TEST(PeerMemory, PartsOfAnotherPastDoNotCount) {
  Cluster cluster;
  cluster.keep(2, {4, 5});
  EXPECT_FALSE(
      cluster.find(2, [](SurveyOptions& o) { o.run = std::string(32, 'b'); }).step);
  EXPECT_FALSE(cluster.find(2, [](SurveyOptions& o) { o.min_step = 6; }).step);
  EXPECT_FALSE(cluster.find(2, [](SurveyOptions& o) { o.min_attempt = 2; }).step);
  EXPECT_TRUE(cluster.find(2, [](SurveyOptions& o) { o.min_step = 5; }).step);
}

TEST(PeerMemory, TheLastAttemptCountsAndItsSecondStepReplacesTheOldOnes) {
  Cluster cluster;
  cluster.keep(2, {8, 9});
  cluster.keep(2, {5}, 2);
  EXPECT_EQ(part_files(cluster, "a1_").size(), 8U);
  const auto first = cluster.find(2);
  ASSERT_TRUE(first.step);
  EXPECT_EQ(first.step->attempt, 2);
  EXPECT_EQ(first.step->step, 5);
  cluster.keep(2, {6, 7}, 3);
  EXPECT_EQ(part_files(cluster, ".part").size(), 8U);
  EXPECT_EQ(cluster.find(2).step->step, 7);
}

TEST(PeerMemory, AtTheEndNothingStays) {
  Cluster cluster;
  cluster.start_machines(2);
  run_ranks(2, [&](comm::Communicator& world) {
    const Share share = share_of(world.rank(), 2, 1);
    MemoryKeeper keeper(cluster.keeper_options(world, 1), share.tensors, 20, world);
    keeper.keep(1, state_of(1), share.tensors);
    keeper.remove();
  });
  EXPECT_TRUE(part_files(cluster, "").empty());
  EXPECT_FALSE(fs::exists(cluster.memory("n0")));
}

TEST(PeerMemory, StateThatOutgrowsItsRoomIsNotKept) {
  Cluster cluster;
  cluster.start_machines(1);
  run_ranks(1, [&](comm::Communicator& world) {
    const Share share = share_of(0, 1, 1);
    MemoryKeeper keeper(cluster.keeper_options(world, 1), share.tensors, 20, world);
    EXPECT_FALSE(keeper.keep(1, std::string(100'000, 'x'), share.tensors).whole);
    EXPECT_TRUE(keeper.keep(2, state_of(2), share_of(0, 1, 2).tensors).whole);
  });
  EXPECT_EQ(cluster.find(1).step->step, 2);
}

TEST(PeerMemory, WhatDoesNotFitIsRefusedWithNumbers) {
  Cluster cluster;
  cluster.start_machines(2);
  // The bytes are never read: the tensor is refused before anything is copied.
  const StateTensor huge{
      kWeight,
      format::TensorSlice::whole("w", {int64_t{1} << 43}, format::DType::F32),
      {static_cast<const std::byte*>(nullptr), size_t{1} << 45}};
  run_ranks(2, [&](comm::Communicator& world) {
    const std::string message = message_of<ConfigError>([&] {
      const MemoryKeeper keeper(cluster.keeper_options(world, 1), {huge}, 20, world);
    });
    EXPECT_HAS(message, "resilience.peer_memory_every");
    EXPECT_HAS(message, "would hold 140.7 TB");
    EXPECT_HAS(message, "35.2 TB of its ranks and 35.2 TB of its neighbours");
    EXPECT_HAS(message, "are free");
  });
  EXPECT_TRUE(part_files(cluster, ".part").empty());
}

TEST(MemoryDirectory, IsOfOneUserOneRunAndOneJob) {
  const fs::path one = memory_directory({}, "/data/run", "7");
  EXPECT_EQ(one.parent_path(), "/dev/shm");
  EXPECT_NE(one, memory_directory({}, "/data/run", "8"));
  EXPECT_NE(one, memory_directory({}, "/data/run2", "7"));
  EXPECT_EQ(one, memory_directory({}, "/data/other/../run", "7"));
  // LONGHAUL_MEMORY_DIR names a directory that the supervisor made for one job. So the
  // job is not part of the name in it.
  EXPECT_EQ(memory_directory("/mem", "/data/run", "7"),
            memory_directory("/mem", "/data/run", "8"));
  EXPECT_HAS(message_of<ConfigError>([] { memory_directory("mem", "/data/run", ""); }),
             "LONGHAUL_MEMORY_DIR = mem");
}

TEST(MemoryDirectory, ThatOthersMayEnterIsRefused) {
  const TempDir dir;
  make_memory_directory(dir / "good" / "run");
  struct stat made = {};
  ASSERT_EQ(::stat((dir / "good" / "run").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777U, 0700U);
  fs::create_directory(dir / "open");
  fs::permissions(dir / "open", fs::perms::owner_all | fs::perms::group_read);
  EXPECT_HAS(message_of<InputError>([&] { make_memory_directory(dir / "open" / "run"); }),
             "closed to others");
  fs::create_directory_symlink(dir / "good", dir / "link");
  EXPECT_HAS(message_of<InputError>([&] { make_memory_directory(dir / "link" / "run"); }),
             "is no directory");
}

TEST(RunKeys, AreReadAgainRenewedAndRemoved) {
  const TempDir dir;
  EXPECT_FALSE(read_run_key(dir.path()));
  const std::string first = renew_run_key(dir.path());
  EXPECT_EQ(first.size(), kRunKeyDigits);
  EXPECT_EQ(read_run_key(dir.path()), first);
  EXPECT_NE(renew_run_key(dir.path()), first);
  testing::write_file(dir / "memory.json", R"({"run": "../../x"})");
  EXPECT_FALSE(read_run_key(dir.path()));
  remove_run_key(dir.path());
  EXPECT_FALSE(fs::exists(dir / "memory.json"));
}

}  // namespace
}  // namespace longhaul::checkpoint
