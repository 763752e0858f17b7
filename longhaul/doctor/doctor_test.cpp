// Runs ranks of one machine that act as ranks of the nodes n0, n1 and so on.
#include "longhaul/doctor/doctor.h"

#include <gtest/gtest.h>

#include <string>

#include "longhaul/base/process.h"
#include "longhaul/comm/backend.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using cluster::HealthReport;
using cluster::HealthResult;

std::shared_ptr<comm::Communicator> world() {
  static const auto ranks = [] {
    comm::CommOptions limits;
    limits.deadline_seconds = 30.0;
    return comm::world(comm::Backend::Mpi, limits);
  }();
  return ranks;
}

int rank() { return world()->rank(); }

/// Returns options for two ranks a node. What a node says of itself is made up, so that
/// it costs no time.
DoctorOptions options_of_pairs() {
  DoctorOptions options;
  options.quick = true;
  options.version = "0.1.0 (test)";
  options.machine = "n" + std::to_string(rank() / 2) + " boot";
  return options;
}
/// Returns options for one rank a node.
DoctorOptions options_of_singles() {
  DoctorOptions options = options_of_pairs();
  options.machine = "n" + std::to_string(rank()) + " boot";
  return options;
}

std::optional<HealthReport> fit() {
  HealthReport report;
  report.time = unix_time();
  report.checks.push_back({"compute", HealthResult::Ok, "made up", 0.0, Json::object()});
  return report;
}

const HealthCheck& find(const DoctorReport& report, const std::string& name) {
  for (const HealthCheck& check : report.together) {
    if (check.name == name) return check;
  }
  throw std::runtime_error("no check " + name);
}

/// A directory that rank 0 makes and all ranks share.
class SharedDirectory {
 public:
  SharedDirectory() {
    path_ = world()->broadcast_string(rank() == 0 ? own_.path().string() : "", 0);
  }
  ~SharedDirectory() { world()->barrier_wait(); }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  const fs::path& path() const { return path_; }
  const fs::path& of_this_rank() const { return own_.path(); }

 private:
  TestDirectory own_;
  fs::path path_;
};

TEST(Doctor, FindsNothingOnFitNodes) {
  const SharedDirectory dir;
  DoctorOptions options = options_of_pairs();
  options.directories = {dir.path()};
  const DoctorReport report = examine(world(), options, fit());
  EXPECT_TRUE(report.ok()) << report.to_json().dump(1);
  EXPECT_EQ(report.ranks, world()->size());
  ASSERT_EQ(report.nodes.size(), static_cast<size_t>(world()->size() / 2));
  EXPECT_EQ(report.nodes.back().node, "n" + std::to_string(world()->size() / 2 - 1));
  EXPECT_HAS(find(report, "inside a node").text, "over 2 ranks");
  EXPECT_GT(find(report, "inside a node").values.at("bytes_per_second").get<double>(),
            0.0);
  if (report.nodes.size() > 1) {
    EXPECT_EQ(find(report, "clocks").result, HealthResult::Ok);
    EXPECT_HAS(find(report, "between nodes").text, "over 2 ranks");
    EXPECT_HAS(find(report, "shared " + dir.path().string()).text, "seen whole");
  }
  world()->barrier_wait();
  EXPECT_TRUE(fs::is_empty(dir.path())) << "something was left behind";
  // All ranks come to the same verdict.
  EXPECT_EQ(world()->gather_strings(report.to_json().dump()),
            std::vector<std::string>(static_cast<size_t>(world()->size()),
                                     report.to_json().dump()));
}

TEST(Doctor, NamesTheNodeThatIsUnfit) {
  auto own = fit();
  if (rank() == world()->size() - 1) {
    own->checks.push_back({"memory", HealthResult::Failed, "a word held", 0.0, {}});
  }
  const DoctorReport report = examine(world(), options_of_singles(), own);
  EXPECT_FALSE(report.ok());
  const std::string last = "n" + std::to_string(world()->size() - 1);
  EXPECT_EQ(report.nodes.back().node, last);
  EXPECT_EQ(report.nodes.back().cause(), "memory: a word held");
  EXPECT_TRUE(report.nodes.front().ok());
}

TEST(Doctor, ChecksANodeOfWhichNobodyHasAReport) {
  const SharedDirectory dir;
  DoctorOptions options = options_of_pairs();
  options.health.quick = true;
  options.health.directories = {"/no/such/dir"};
  const DoctorReport report = examine(world(), options, std::nullopt);
  EXPECT_FALSE(report.ok());
  EXPECT_HAS(report.nodes.at(0).cause(), "/no/such/dir");
}

TEST(Doctor, NamesTheNodeOfAnotherVersion) {
  DoctorOptions options = options_of_singles();
  if (rank() == 1) options.version = "0.0.9 (old)";
  const DoctorReport report = examine(world(), options, fit());
  EXPECT_FALSE(report.ok());
  if (world()->size() > 2) {
    EXPECT_HAS(find(report, "version").text,
               "n1 has 0.0.9 (old), the others 0.1.0 (test); install one version");
  }
}

TEST(Doctor, NamesTheNodeOfOtherLibrariesAndOneThatCannotCompute) {
  DoctorOptions options = options_of_singles();
  options.libraries = rank() == 1 ? "LibTorch: 2.12.0" : "LibTorch: 2.13.0";
  const DoctorReport others = examine(world(), options, fit());
  EXPECT_FALSE(others.ok());
  if (world()->size() > 2) {
    EXPECT_HAS(find(others, "libraries").text,
               "n1 has LibTorch: 2.12.0, the others LibTorch: 2.13.0");
  }
  options.computes = rank() != 1;
  options.libraries = rank() == 1 ? "libtorch_cpu.so: cannot open" : "LibTorch: 2.13.0";
  const DoctorReport broken = examine(world(), options, fit());
  EXPECT_EQ(find(broken, "libraries").result, HealthResult::Failed);
  EXPECT_HAS(find(broken, "libraries").text,
             "n1: train, bench, eval and generate cannot start (libtorch_cpu.so: cannot "
             "open)");
}

TEST(Doctor, NamesTheNodeWhoseClockIsWrong) {
  DoctorOptions options = options_of_singles();
  options.clock = [late = rank() == 1] { return unix_time() - (late ? 3.0 : 0.0); };
  const DoctorReport report = examine(world(), options, fit());
  const HealthCheck& check = find(report, "clocks");
  EXPECT_EQ(check.result, HealthResult::Failed);
  EXPECT_HAS(check.text, "ms behind n0");
  EXPECT_EQ(check.text.find("n1 is "), 0U) << check.text;
  EXPECT_NEAR(check.values.at("worst_ms").get<double>(), -3000.0, 200.0);
}

TEST(Doctor, NoticesADirectoryThatIsNotShared) {
  const SharedDirectory dir;
  DoctorOptions options = options_of_singles();
  options.visible_seconds = 0.2;
  options.quick = false;
  options.directories = {rank() == 1 ? dir.of_this_rank() : dir.path()};
  const DoctorReport report = examine(world(), options, fit());
  EXPECT_FALSE(report.ok());
  std::string text;
  for (const HealthCheck& check : report.together) {
    if (check.result == HealthResult::Failed) text += check.text;
  }
  EXPECT_HAS(text, "must be one directory that all nodes share");
  world()->barrier_wait();
}

TEST(Doctor, TriesEveryAxisOfTheRun) {
  DoctorOptions options = options_of_pairs();
  options.parallel.emplace();
  options.parallel->tp = 2;
  const DoctorReport report = examine(world(), options, fit());
  EXPECT_TRUE(report.ok()) << report.to_json().dump(1);
  EXPECT_HAS(find(report, "axis tp").text, "over 2 ranks");
  if (world()->size() == 4) {
    EXPECT_HAS(find(report, "axis dp").text, "over 2 ranks");
  }

  options.parallel->pp = 3;
  const DoctorReport wrong = examine(world(), options, fit());
  EXPECT_EQ(find(wrong, "axes").result, HealthResult::Failed);
  EXPECT_HAS(find(wrong, "axes").text, "start a multiple of 6");
}

TEST(Doctor, TriesTheDevicesInPlaceOfTheAxes) {
  DoctorOptions options = options_of_pairs();
  options.parallel.emplace();
  options.parallel->tp = 2;
  std::vector<HealthCheck> found(1);
  found.front().name = "tried";
  options.try_devices = [&](comm::Communicator& all, comm::Communicator& node) {
    EXPECT_EQ(all.size(), world()->size());
    EXPECT_EQ(node.size(), 2);
    return found;
  };
  const DoctorReport report = examine(world(), options, fit());
  EXPECT_EQ(find(report, "tried").result, HealthResult::Ok);
  EXPECT_THROW(find(report, "axis tp"), std::runtime_error);

  found.clear();  // the run computes on CPUs
  EXPECT_HAS(find(examine(world(), options, fit()), "axis tp").text, "over 2 ranks");

  if (rank() == 1) options.try_devices = nullptr;
  EXPECT_EQ(find(examine(world(), options, fit()), "run.device").result,
            HealthResult::Failed);
}

}  // namespace
}  // namespace longhaul::doctor
