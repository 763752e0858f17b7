#include "longhaul/cluster/fleet/ssh_hosts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

TEST(SshHosts, AListOrAFileNamesThem) {
  EXPECT_EQ(read_hosts("n1,n2.cluster, n-3"),
            (std::vector<std::string>{"n1", "n2.cluster", "n-3"}));
  const TestDirectory dir;
  write_file(dir / "hosts", "# the first rack\nn1\nn2  # spare\n\n");
  EXPECT_EQ(read_hosts((dir / "hosts").string()), (std::vector<std::string>{"n1", "n2"}));
}

TEST(SshHosts, WhatWouldBeAnOptionOrAShellsWordIsRefused) {
  for (const char* hosts : {"", " , ", "n1,n1", "-oProxyCommand=x", "n1,n2;rm", "n1 $(x)",
                            "user@n1", "/no/such/file"}) {
    EXPECT_THROW(read_hosts(hosts), InputError) << hosts;
  }
}

TEST(SshHosts, MpirunPutsTheSameNumberOnEach) {
  EXPECT_EQ(mpirun_words({"n1", "n3"}, 8, {"A", "B"}),
            (std::vector<std::string>{"mpirun", "-n", "16", "--host", "n1:8,n3:8",
                                      "--map-by", "ppr:8:node", "--bind-to", "none", "-x",
                                      "A", "-x", "B"}));
}

TEST(SshHosts, TheSecretIsTheFirstLineOfAnAgentsInputAndOnNoCommandLine) {
  const TestDirectory dir;
  const std::string file = (dir / "said").string();
  const Secret secret = Secret::make();
  // This machine's own agent needs no ssh.
  JobStep step = start_agent_by_ssh(
      "here", "here",
      {"sh", "-c",
       "read line; tr '\\0' ' ' < /proc/$$/cmdline > $0.words; env > $0.env; "
       "printf %s \"$line\" > $0",
       file},
      secret);
  for (int i = 0; i < 500 && !step.poll(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(read_text(file), secret.to_text());
  EXPECT_EQ(read_text(file + ".words").find(secret.to_text()), std::string::npos);
  EXPECT_EQ(read_text(file + ".env").find(secret.to_text()), std::string::npos);
}

}  // namespace
}  // namespace longhaul::cluster
