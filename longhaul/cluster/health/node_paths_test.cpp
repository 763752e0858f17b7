#include "longhaul/cluster/health/node_paths.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

const std::vector<NeededPath> kOne = {{"the run's directory", "/fsx/run", PathRole::Run}};

NodePaths sees(const std::string& node, const std::string& what,
               const std::string& trouble = "") {
  return {node, {PathView{true, what, trouble}}};
}

TEST(NodePaths, TheNodeThatAloneSeesNothingIsAtFault) {
  const Findings found =
      judge_paths(kOne, {sees("n1", "run 7"), sees("n2", ""), sees("n3", "run 7")});
  EXPECT_TRUE(found.shared.empty());
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_EQ(found.sick[0].node, "n2");
  EXPECT_TRUE(found.sick[0].seen_otherwise);
  EXPECT_EQ(found.sick[0].cause,
            "/fsx/run (the run's directory) holds nothing, where other nodes see run 7");
}

TEST(NodePaths, OfTwoNodesTheOneThatSeesNothingIsAtFault) {
  const Findings found = judge_paths(kOne, {sees("n1", ""), sees("n2", "run 7")});
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_EQ(found.sick[0].node, "n1");
}

TEST(NodePaths, OfTwoNodesThatSeeDifferentThingsNeitherIsBlamed) {
  const Findings found = judge_paths(kOne, {sees("n1", "run 8"), sees("n2", "run 7")});
  EXPECT_TRUE(found.sick.empty());
  EXPECT_EQ(found.shared,
            std::vector<std::string>{"nodes see different things at /fsx/run (the run's "
                                     "directory): n1 run 8, n2 run 7"});
}

TEST(NodePaths, WhoSeesARunWhereMostSeeNothingIsNotBlamed) {
  const Findings found =
      judge_paths(kOne, {sees("n1", "run 7"), sees("n2", ""), sees("n3", "")});
  EXPECT_TRUE(found.sick.empty());
  ASSERT_EQ(found.shared.size(), 1U);
  EXPECT_HAS(found.shared[0], "n1 run 7, n2 nothing, n3 nothing");
}

TEST(NodePaths, WhatNoNodeSeesYetIsNoFinding) {
  const Findings found = judge_paths(kOne, {sees("n1", ""), sees("n2", "")});
  EXPECT_TRUE(found.sick.empty() && found.shared.empty());
}

TEST(NodePaths, AFileSystemThatIsReadOnlyOnOneNodeIsItsFaultAndOnMostTheJobs) {
  const std::string trouble = "Read-only file system";
  const Findings one =
      judge_paths(kOne, {sees("n1", "run 7"), sees("n2", "run 7", trouble)});
  ASSERT_EQ(one.sick.size(), 1U);
  EXPECT_EQ(one.sick[0].node, "n2");
  EXPECT_FALSE(one.sick[0].seen_otherwise);
  EXPECT_EQ(one.sick[0].cause,
            "/fsx/run (the run's directory) cannot be written: Read-only file system");
  const Findings most = judge_paths(
      kOne,
      {sees("n1", "run 7", trouble), sees("n2", "run 7", trouble), sees("n3", "run 7")});
  EXPECT_TRUE(most.sick.empty());
  ASSERT_EQ(most.shared.size(), 1U);
  EXPECT_HAS(most.shared[0], "(seen on 2 of 3 nodes)");
}

TEST(NodePaths, ADirectoryThatOpensFilesAndTakesNoBytesIsOfNoUse) {
  if (::geteuid() != 0) GTEST_SKIP() << "a small file system needs root";
  const TestDirectory dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounts are not allowed here";
  }
  const std::vector<NeededPath> needed = {
      {"checkpoints", dir.path(), PathRole::Checkpoints},
      {"run", dir.path(), PathRole::Run}};
  for (const PathView& view : view_paths(needed, 10.0)) EXPECT_EQ(view.trouble, "");
  EXPECT_TRUE(fs::is_empty(dir.path()));
  write_text_atomic(dir / "full", std::string(64 << 10, 'x'));
  for (const PathView& view : view_paths(needed, 10.0)) {
    EXPECT_EQ(view.trouble, "No space left on device");
  }
  ::umount(dir.path().c_str());
}

TEST(NodePaths, ANodeThatCannotFindOutIsNotJudged) {
  const NodePaths silent{"n1", {PathView{false, {}, {}}}};
  const NodePaths older{"n4", {}};
  const Findings found =
      judge_paths(kOne, {silent, sees("n2", "run 7"), sees("n3", "run 7"), older});
  EXPECT_TRUE(found.sick.empty() && found.shared.empty());
}

TEST(NodePaths, CausesOfOneNodeStandInOneLine) {
  std::vector<NeededPath> needed = kOne;
  needed.push_back({"the program", "/opt/longhaul", PathRole::Input});
  const PathView run{true, "run 7", {}};
  const PathView program{true, "a file", {}};
  const PathView none{true, {}, {}};
  const Findings found = judge_paths(
      needed, {{"n1", {run, program}}, {"n2", {none, none}}, {"n3", {run, program}}});
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_HAS(found.sick[0].cause, "see run 7; /opt/longhaul (the program) holds nothing");
}

TEST(NodePaths, AProgramIsKnownByItsBuildAndOneOfAnotherBuildIsAtFault) {
  const TestDirectory dir;
  const fs::path own = fs::read_symlink("/proc/self/exe");
  const std::string bytes = read_text(own, uint64_t{1} << 32);
  write_text_atomic(dir / "copy", bytes);
  write_text_atomic(dir / "cut", bytes.substr(0, 100));
  write_text_atomic(dir / "script", "#!/bin/sh\n");
  const auto seen = [](const fs::path& path) {
    return view_paths({{"the program", path, PathRole::Input}}, 10.0).at(0).seen;
  };
  const std::string build = seen(own);
  EXPECT_TRUE(build.starts_with("build ") && build.size() == 18) << build;
  EXPECT_EQ(seen(dir / "copy"), build);
  EXPECT_EQ(seen(dir / "script"), "a file");
  EXPECT_EQ(seen(dir / "cut"), "a file");
  EXPECT_EQ(seen(dir / "absent"), "");
  const std::vector<NeededPath> needed = {
      {"the program", "/opt/longhaul", PathRole::Input}};
  const Findings found = judge_paths(
      needed, {sees("n1", build), sees("n2", "build 0123456789ab"), sees("n3", build)});
  ASSERT_EQ(found.sick.size(), 1U);
  EXPECT_EQ(
      found.sick[0].cause,
      "/opt/longhaul (the program) holds build 0123456789ab, where other nodes see " +
          build);
}

TEST(NodePaths, ARunItsCheckpointsAndInputsAreKnownByWhatIsInThem) {
  const TestDirectory dir;
  const fs::path run_dir = dir / "run";
  const fs::path checkpoints = dir / "checkpoints";
  fs::create_directories(run_dir);
  fs::create_directories(checkpoints);
  write_text_atomic(dir / "file", "1234");
  const std::vector<NeededPath> needed = {
      {"run", run_dir, PathRole::Run},
      {"checkpoints", checkpoints, PathRole::Checkpoints},
      {"file", dir / "file", PathRole::Input},
      {"directory", dir.path(), PathRole::Input},
      {"absent", dir / "absent", PathRole::Input},
      {"empty", checkpoints, PathRole::Input},
      {"room", dir.path(), PathRole::Room},
      {"no room", dir / "absent", PathRole::Room}};
  auto views = view_paths(needed, 10.0);
  ASSERT_EQ(views.size(), needed.size());
  EXPECT_EQ(views[0].seen, "");
  EXPECT_EQ(views[1].seen, "");
  EXPECT_EQ(views[2].seen, "a file");
  EXPECT_EQ(views[3].seen, "a directory");
  EXPECT_EQ(views[4].seen, "");
  EXPECT_EQ(views[5].seen, "");
  EXPECT_EQ(views[6].trouble, "");
  EXPECT_EQ(views[7].trouble, "No such file or directory");

  run::RunPast past = run::RunPast::begin();
  past.write(run_dir);
  run::mark_checkpoints(checkpoints, {past.run, 0, {}});
  views = view_paths(needed, 10.0);
  EXPECT_EQ(views[0].seen, "an unsupervised run " + past.run);
  EXPECT_EQ(views[1].seen, "those of run " + past.run);
  fs::create_directories(run_dir / "control");
  write_text_atomic(run_dir / run::kSupervisorLockFile, "{}");
  EXPECT_EQ(view_paths(needed, 10.0)[0].seen, "run " + past.run);
}

TEST(NodePaths, NeededPathsSurviveTheWayToAnAgent) {
  const Json json = kOne;
  const auto read = json.get<std::vector<NeededPath>>();
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].what, "the run's directory");
  EXPECT_EQ(read[0].path, "/fsx/run");
  EXPECT_EQ(read[0].role, PathRole::Run);
}

}  // namespace
}  // namespace longhaul::cluster
