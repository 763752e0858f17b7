// Simulates a power cut at any moment: the disk has any part of the writes and names that
// were not synced.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <set>

#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/run/files.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/power_cut.h"
#include "tests/faults/tiny_check.h"

namespace longhaul::faults {
namespace {

constexpr uint64_t kSeed = 20240607;

/// Writes trees to a disk, file by file where they differ from the tree before.
class Disk {
 public:
  explicit Disk(fs::path root) : root_(std::move(root)) { fs::create_directories(root_); }

  void hold(const Tree& tree) {
    for (auto entry = now_.rbegin(); entry != now_.rend(); ++entry) {
      if (!tree.contains(entry->first)) fs::remove(root_ / entry->first);
    }
    for (const auto& [name, content] : tree) {
      const auto old = now_.find(name);
      if (old != now_.end() && old->second == content) continue;
      if (name.back() == '/') {
        fs::create_directory(root_ / name.substr(0, name.size() - 1));
      } else {
        File file = File::create(root_ / name);
        file.write(content);
        file.close();
      }
    }
    now_ = tree;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
  Tree now_;
};

Tree tree_of(const fs::path& root) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).string();
    if (entry.is_directory()) {
      tree[name + "/"];
    } else {
      tree[name] = read_text(entry.path());
    }
  }
  return tree;
}

std::string hash_of(const Tree& tree) {
  std::string text;
  for (const auto& [name, content] : tree) {
    text += name + '\n' + std::to_string(content.size()) + '\n' + content;
  }
  return hash_hex(text);
}

/// Returns, by number of operations, the checkpoints that must be there: those that were
/// reported as committed, until the first change that deletes them.
std::vector<std::map<int64_t, int>> requirements(const std::vector<Operation>& record) {
  std::vector<std::map<int64_t, int>> result(1);
  std::map<int64_t, int> now;
  for (const Operation& operation : record) {
    const fs::path path(operation.kind == "rename" ? operation.other : operation.path);
    const bool manifest = path.filename() == run::kManifestFile;
    const int64_t step =
        manifest ? std::stol(path.parent_path().filename().string().substr(5)) : 0;
    if (operation.kind == "unlink" && manifest) now.erase(step);
    // The step is saved again: from here on the old or the new checkpoint must be there.
    if (operation.kind == "rename" && manifest && now.contains(step)) now[step] = 0;
    if (operation.kind == "marker") {
      const auto said = parse_said(operation.path);
      if (said && said->error.empty()) now[said->step] = said->attempt;
    }
    result.push_back(now);
  }
  return result;
}

/// Checks the trees of a record, each tree once.
class Replay {
 public:
  Replay(const fs::path& record, const fs::path& root, const fs::path& disk)
      : operations_(read_record(record)),
        cut_(operations_, root.string()),
        required_(requirements(operations_)),
        disk_(disk),
        generator_(kSeed) {}

  PowerCut& cut() { return cut_; }
  const std::vector<Operation>& operations() const { return operations_; }
  size_t looked() const { return seen_.size(); }

  /// Returns the first problem of any tree that a cut after `from` or more operations may
  /// leave.
  std::string first_problem(size_t from, int random) {
    std::string problem;
    for (size_t n = from; n <= operations_.size() && problem.empty(); ++n) {
      cut_.trees(n, random, generator_, [&](const Tree& tree) {
        const std::string found = look(tree, required_[n]);
        if (!found.empty()) {
          problem = "power cut after " + std::to_string(n) + " operations: " + found;
        }
        return problem.empty();
      });
    }
    return problem;
  }

 private:
  std::string look(const Tree& tree, const std::map<int64_t, int>& required) {
    std::string key = hash_of(tree);
    for (const auto& [step, attempt] : required) {
      key += ' ' + std::to_string(step) + '=' + std::to_string(attempt);
    }
    const auto [known, is_new] = seen_.emplace(key, "");
    if (is_new) {
      disk_.hold(tree);
      known->second = problem_of(disk_.root() / "run", required);
    }
    return known->second;
  }

  std::vector<Operation> operations_;
  PowerCut cut_;
  std::vector<std::map<int64_t, int>> required_;
  Disk disk_;
  std::mt19937_64 generator_;
  std::map<std::string, std::string> seen_;
};

/// Records four saves, of which two are kept, and then another start that saves the last
/// step again and one more step.
Faulty record_run(const FaultDir& dir, bool overlap) {
  Faulty faulty = {dir / "disk", "nosync"};
  faulty.overlap = overlap;
  faulty.record = dir / "record";
  fs::create_directories(faulty.dir);
  faulty.steps = {1, 2, 3, 4};
  EXPECT_EQ(run_faulty(faulty).said.size(), 4U);
  faulty.steps = {4, 5};
  EXPECT_EQ(run_faulty(faulty).said.size(), 2U);
  return faulty;
}

TEST(LostWrites, TheRecordHoldsEveryChangeOfTheDisk) {
  const FaultDir dir;
  const Faulty faulty = record_run(dir, true);
  const PowerCut cut(read_record(faulty.record), faulty.dir.string());
  const Tree replayed = cut.whole(cut.size());
  EXPECT_EQ(replayed, tree_of(faulty.dir));
  EXPECT_TRUE(replayed.contains("run/checkpoints/step_00000005/manifest.json"));
}

TEST(LostWrites, NoPowerCutLosesAReportedCheckpointOrLeavesHalfOfOne) {
  const FaultDir dir;
  const Faulty faulty = record_run(dir, true);
  Replay replay(faulty.record, faulty.dir, dir / "replayed");
  EXPECT_EQ(replay.first_problem(0, 3), "");
  EXPECT_GT(replay.looked(), 1000U);
}

// The names that the killed process made but did not sync are still not durable when the
// next start commits.
TEST(LostWrites, APowerCutAfterAKillAndARestartLosesNothingEither) {
  const FaultDir dir;
  Faulty faulty = {dir / "disk", ""};
  size_t looked = 0;
  for (size_t n = 1; n <= 60; n += 7) {
    SCOPED_TRACE("killed after change " + std::to_string(n));
    dir.clear();
    fs::create_directories(faulty.dir);
    faulty.record = dir / "record";
    faulty.steps = {1};
    faulty.rules = "nosync;kill:when=after:n=" + std::to_string(n);
    run_faulty(faulty);
    const size_t killed_at = read_record(faulty.record).size();
    faulty.rules = "nosync";
    faulty.steps = {1, 2};
    ASSERT_EQ(run_faulty(faulty).said.size(), 2U);
    Replay replay(faulty.record, faulty.dir, dir / "replayed");
    ASSERT_EQ(replay.first_problem(killed_at, 0), "");
    looked += replay.looked();
  }
  EXPECT_GT(looked, 3000U);
}

// Shows that the tests above would see a missing sync, and that no sync is in vain.
TEST(LostWrites, EverySyncOfASaveIsNeeded) {
  const FaultDir dir;
  const Faulty faulty = record_run(dir, false);
  Replay replay(faulty.record, faulty.dir, dir / "replayed");
  int needed = 0;
  std::vector<std::string> in_vain;
  for (size_t i = 0; i < replay.operations().size(); ++i) {
    const Operation& operation = replay.operations()[i];
    if (operation.kind != "sync") continue;
    // The lock's own syncs are tested elsewhere.
    if (operation.path.find("/checkpoints") == std::string::npos) continue;
    replay.cut().leave_out(i);
    if (replay.first_problem(i + 1, 0).empty()) {
      in_vain.push_back(fs::path(operation.path).lexically_relative(faulty.dir).string());
    } else {
      ++needed;
    }
  }
  EXPECT_GT(needed, 40);
  // One sync is expected: the sync of the step that the second start saves again. Its
  // name was durable, but would not have been if the first start had been killed earlier.
  EXPECT_EQ(in_vain, std::vector<std::string>{"run/checkpoints"});
}

}  // namespace
}  // namespace longhaul::faults
