#include "longhaul/cluster/slurm/container.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/cluster/slurm/slurm_nodes.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Paths = std::vector<fs::path>;

TEST(Container, MountsWhatIsNamedAtTheSamePlaceOnceAndParentsForAllBelow) {
  const TestDirectory scratch;
  const fs::path dir = fs::canonical(scratch.path());
  fs::create_directories(dir / "runs/a/checkpoints");
  fs::create_directories(dir / "runs/ab");
  EXPECT_EQ(mounts_of({dir / "runs/a/checkpoints", dir / "runs/ab", dir / "runs/a/",
                       dir / "runs/../runs/a"}),
            (Paths{dir / "runs/a", dir / "runs/ab"}));
  EXPECT_EQ(mounts_of({dir / "runs/a", dir / "runs/ab"}, {dir / "runs/a"}),
            Paths{dir / "runs/ab"});
  // A directory that does not exist yet is made in its nearest parent: that parent is
  // mounted.
  EXPECT_EQ(mounts_of({dir / "runs/ab/new/deep"}), Paths{dir / "runs/ab"});
}

TEST(Container, MountsWhatLinksLeadToAsAHubsCacheHasThem) {
  const TestDirectory scratch;
  const fs::path dir = fs::canonical(scratch.path());
  fs::create_directories(dir / "hub/blobs");
  fs::create_directories(dir / "hub/snapshots/1");
  write_text_durable(dir / "hub/blobs/abc", "x");
  fs::create_symlink("../../blobs/abc", dir / "hub/snapshots/1/model.safetensors");
  fs::create_symlink(dir / "hub/snapshots/1", dir / "model");
  EXPECT_EQ(mounts_of({dir / "model"}),
            (Paths{dir / "hub/blobs/abc", dir / "hub/snapshots/1", dir / "model"}));
}

TEST(Container, LeavesOutWhatEveryImageHasForItself) {
  EXPECT_EQ(mounts_of({"/", "/usr", "/tmp/", "/dev/shm", "/etc", "/absent-anywhere/x"}),
            Paths{});
}

TEST(Container, RefusesAPathThatTheListCannotHold) {
  const TestDirectory scratch;
  for (const char* name : {"a,b", "a:b", "a\nb"}) {
    fs::create_directory(scratch.path() / name);
    EXPECT_THROW(mounts_of({scratch.path() / name}), InputError) << name;
  }
}

TEST(Container, TheProgramComesWithItsLibraries) {
  EXPECT_EQ(tree_of_program("/fsx/longhaul/bin/longhaul"), "/fsx/longhaul");
  EXPECT_EQ(tree_of_program("/usr/local/longhaul/bin/longhaul"), "/usr/local/longhaul");
  EXPECT_EQ(tree_of_program(
                "/fsx/env/lib/python3.11/site-packages/longhaul_train/bin/longhaul"),
            "/fsx/env");
  EXPECT_EQ(tree_of_program("/fsx/target/longhaul_train/bin/longhaul"), "/fsx/target");
  for (const char* system :
       {"/usr/bin/longhaul", "/usr/local/bin/longhaul", "/longhaul"}) {
    EXPECT_THROW(tree_of_program(system), InputError) << system;
  }
}

TEST(Container, ABuiltProgramsLibrariesAreThoseOfItsEnvironment) {
  const TestDirectory scratch;
  write_text_durable(scratch / "maps",
                     "7f0-7f1 r-xp 00 08:01 5 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
                     "7f2-7f3 r-xp 00 08:01 6 "
                     "/fsx/ann/my env/lib/python3.11/site-packages/pyarrow/libarrow.so\n"
                     "7f4-7f5 r-xp 00 08:01 7 /usr/lib/python3/dist-packages/x.so\n"
                     "7f6-7f7 rw-p 00 00:00 0\n");
  EXPECT_EQ(environments_in_use(scratch / "maps"), Paths{"/fsx/ann/my env"});
}

TEST(Container, ARunNamesItsDirectoriesItsModelAndItsData) {
  RunConfig config;
  config.run.dir = "runs/a";
  config.checkpoint.dir = "/scratch/a";
  config.model.config = "models/x";
  config.init.weights = "/models/y";
  config.data.train.resize(1);
  config.data.train[0].path.entries = {"/data/c4/part-*.arrow", "data/[ab]/x"};
  config.checkpoint.resume.kind = ResumeFrom::Kind::Path;
  config.checkpoint.resume.path = "/runs/before";
  config.run.golden.emplace().file = "/golden/loss.txt";
  config.log.tensorboard_dir = "/tb";
  for (const char* wanted : {"runs/a", "/scratch/a", "models/x", "/models/y", "/data/c4",
                             "data", "/runs/before", "/golden/loss.txt", "/tb"}) {
    EXPECT_EQ(std::ranges::count(paths_of_run(config), fs::path(wanted)), 1) << wanted;
  }
  // Agents read the file of unhealthy nodes, and they run outside of the container.
  EXPECT_EQ(std::ranges::count(paths_of_run(config), config.resilience.unhealthy_file),
            0);
}

TEST(Container, AVerbsWordsNameAbsolutePathsAndWhatIsThere) {
  EXPECT_EQ(paths_of_words({"data", "build", "/data/*.gz", "--out=/fsx/out", "--threads",
                            "4", "--set", "a=b", "/proc/self"}),
            (Paths{"/data", "/fsx/out", "/proc/self"}));
}

TEST(Container, OfTheRanksStandsBeforeTheirProgram) {
  const auto words = worker_step_words({"n1"}, {"n1"}, 2,
                                       {"/images/a.sqsh",
                                        {"/fsx/a", "/fsx/my b"},
                                        "/fsx/a",
                                        {"/shared/.aws"},
                                        {"NCCL_DEBUG", "AWS_PROFILE"}});
  EXPECT_EQ(std::vector<std::string>(words.end() - 4, words.end()),
            (std::vector<std::string>{
                "--container-image=/images/a.sqsh",
                "--container-mounts=/shared/.aws:/shared/.aws:ro,/fsx/a:/fsx/a,"
                "/fsx/my b:/fsx/my b",
                "--container-env=NCCL_DEBUG,AWS_PROFILE", "--container-workdir=/fsx/a"}));
  for (const std::string& word : worker_step_words({"n1"}, {"n1"}, 2, {})) {
    EXPECT_EQ(word.find("--container"), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace longhaul::cluster
