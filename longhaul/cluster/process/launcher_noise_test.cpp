#include "longhaul/cluster/process/launcher_noise.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::cluster {
namespace {

const std::string kDashes(74, '-');

std::vector<std::string> shown(const std::vector<std::string>& lines) {
  LauncherNoise noise;
  std::vector<std::string> all;
  const auto take = [&](const std::vector<std::string>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
  for (const std::string& line : lines) take(noise.pass(line));
  take(noise.rest());
  return all;
}

TEST(LauncherNoise, WhatOpenMpiSaysAfterEveryEndIsNotShown) {
  EXPECT_EQ(
      shown(
          {kDashes, "Primary job  terminated normally, but 1 process returned",
           "a non-zero exit code. Per user-direction, the job has been aborted.", kDashes,
           kDashes,
           "mpirun detected that one or more processes exited with non-zero status, "
           "thus causing",
           "the job to be terminated. The first process to do so was:", "",
           "  Process name: [[1,1],0]", "  Exit code:    75", kDashes, kDashes,
           "mpirun noticed that process rank 1 with PID 0 on node n exited on signal 9 "
           "(Killed).",
           kDashes,
           "[n:1] 1 more process has sent help message help-mpi-api.txt / mpi-abort",
           "[n:1] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / "
           "error messages"}),
      std::vector<std::string>{});
}

TEST(LauncherNoise, ACauseIsShownWhole) {
  const std::vector<std::string> lines = {
      kDashes, "There are not enough slots available in the system to satisfy the 9",
      "slots that were requested by the application:", kDashes, "ssh: connect: refused"};
  EXPECT_EQ(shown(lines), lines);
}

TEST(LauncherNoise, LinesOfRanksPassAlsoWithinABanner) {
  const std::string ours = "longhaul: error: [config] wrong";
  EXPECT_EQ(shown({kDashes, "MPI_ABORT was invoked on rank 0 in communicator", ours,
                   "with errorcode 78.", kDashes}),
            std::vector<std::string>{ours});
}

TEST(LauncherNoise, ABannerThatNeverEndsIsShownAtTheEnd) {
  const std::vector<std::string> lines = {kDashes, "something", "else"};
  EXPECT_EQ(shown(lines), lines);
}

std::string cause(const std::vector<std::string>& lines) {
  LauncherNoise noise;
  for (const std::string& line : lines) noise.pass(line);
  return noise.cause();
}

TEST(LauncherNoise, TheCauseOfAFailedStartIsItsFirstWordsOrWhatToDo) {
  EXPECT_EQ(
      cause({kDashes, "A call to mkdir was unable to create the desired directory:", "",
             "  Directory: /gone/ompi.vm.0", "  Error:     Permission denied", "",
             "Please check to ensure you have adequate permissions", kDashes,
             "[vm:1] [[1,0],0] ORTE_ERROR_LOG: Error in file session_dir.c", kDashes,
             "  orte_session_dir failed", kDashes}),
      "mpirun cannot make /gone/ompi.vm.0: Permission denied; set TMPDIR to a directory "
      "that can be written");
  EXPECT_EQ(cause({"[vm:1] opal_ifinit: unable to find network interfaces.", kDashes,
                   "The PMIx server's listener thread failed to start. We cannot",
                   "continue.", kDashes})
                .substr(0, 62),
            "no network interface with an IPv4 address is up, and mpirun wa");
  EXPECT_EQ(cause({kDashes, "  mpirun was unable to find what nobody has thought of.", "",
                   "  Node: n1", kDashes, kDashes, "and more", kDashes}),
            "mpirun was unable to find what nobody has thought of. Node: n1");
}

TEST(LauncherNoise, WhatRanksSayAndNoiseAreNoCause) {
  EXPECT_EQ(cause({kDashes, "mpirun noticed that process rank 1 exited on signal 9",
                   kDashes, "longhaul: error: [file] No space left on device", "a line"}),
            "");
}

}  // namespace
}  // namespace longhaul::cluster
