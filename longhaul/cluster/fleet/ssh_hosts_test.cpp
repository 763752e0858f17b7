#include "longhaul/cluster/fleet/ssh_hosts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
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
      secret, {"PATH"});
  for (int i = 0; i < 500 && !step.poll(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(read_text(file), secret.to_text());
  EXPECT_EQ(read_text(file + ".words").find(secret.to_text()), std::string::npos);
  EXPECT_EQ(read_text(file + ".env").find(secret.to_text()), std::string::npos);
}

TEST(SshHosts, VariablesFollowTheSecretOnAnotherHostAndStandOnNoCommandLine) {
  const TestDirectory dir;
  // Stands for ssh and the shell of the other host, which has none of these variables.
  write_file(dir / "ssh",
             "#!/bin/sh\n"
             "tr '\\0' ' ' < /proc/$$/cmdline > $0.words\n"
             "for last; do :; done\n"
             "exec env -i PATH=/usr/bin:/bin sh -c \"$last\"\n");
  fs::permissions(dir / "ssh", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (dir.path().string() + ":" + path).c_str(), 1);
  const std::string hidden(20'000, 'h');  // more than a pipe holds for sure
  ::setenv("MY_TOKEN", hidden.c_str(), 1);
  const std::string file = (dir / "said").string();
  const Secret secret = Secret::make();
  JobStep step = start_agent_by_ssh(
      "there", "here",
      {"sh", "-c", "read line; cat > $0; printf '%s %s' \"$line\" \"$1\" > $0.line",
       file},
      secret, {"MY_TOKEN"});
  for (int i = 0; i < 500 && !step.poll(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::unsetenv("MY_TOKEN");
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(read_text(file + ".line"), secret.to_text() + " --environment");
  EXPECT_EQ(read_text(file), "MY_TOKEN=" + hidden + '\0');
  EXPECT_EQ(read_text((dir / "ssh.words").string()).find("hhh"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::cluster
