#include "longhaul/cluster/slurm/host_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Names = std::vector<std::string>;

TEST(HostList, Expands) {
  EXPECT_EQ(expand_hosts(""), Names{});
  EXPECT_EQ(expand_hosts("head"), Names{"head"});
  EXPECT_EQ(expand_hosts("n[1-3,7],gpu-a[09-11],x.y_z"),
            (Names{"n1", "n2", "n3", "n7", "gpu-a09", "gpu-a10", "gpu-a11", "x.y_z"}));
  EXPECT_EQ(expand_hosts("r[1-2]n[08-09]-ib"),
            (Names{"r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"}));
  EXPECT_EQ(expand_hosts("n[9-10]"), (Names{"n9", "n10"}));
  EXPECT_EQ(expand_hosts("n[007]"), Names{"n007"});
}

TEST(HostList, Compresses) {
  EXPECT_EQ(compress_hosts({}), "");
  EXPECT_EQ(compress_hosts({"n1"}), "n1");
  EXPECT_EQ(compress_hosts({"n1", "n2", "n3", "n7", "head", "n4"}), "n[1-3,7],head,n4");
  EXPECT_EQ(compress_hosts({"n08", "n09", "n10", "n011"}), "n[08-10,011]");
  EXPECT_EQ(compress_hosts({"n9", "n10", "n8"}), "n[9-10,8]");
  EXPECT_EQ(compress_hosts({"a12345678901234567890", "a1"}), "a12345678901234567890,a1");
}

TEST(HostList, BothWaysGiveTheSameNames) {
  Names hosts;
  for (int i = 0; i < 3000; ++i) {
    const int number = i * 7919 % 1200 / (1 + i % 3);
    hosts.push_back(i % 5 == 0   ? fmt::format("rack-{}", i)
                    : i % 7 == 0 ? fmt::format("n{:03}", number)
                                 : fmt::format("n{}", number));
  }
  EXPECT_EQ(expand_hosts(compress_hosts(hosts)), hosts);
}

TEST(HostList, HostileTextIsRefusedBeforeItCosts) {
  for (const char* text : {"n[1-99999]",
                           "n[1-999]x[1-999]",
                           "n[0-999999999]",
                           "n[1-9999999999999999999]",
                           "n[3-1]",
                           "n[",
                           "n[]",
                           "n[1",
                           "n[1-]",
                           "n]",
                           "n[a]",
                           ",",
                           "a,",
                           "a,,b",
                           "a b",
                           "$(id)",
                           "n[1-2]`x`",
                           "a\nb",
                           "n[1,,2]",
                           "n[[1]]"}) {
    EXPECT_THROW(expand_hosts(text), InputError) << text;
  }
  EXPECT_THROW(expand_hosts(std::string(2 << 20, 'a')), InputError);
  EXPECT_THROW(expand_hosts(std::string(300, 'a')), InputError);
  std::string many;
  for (int i = 0; i < 40; ++i) many += "[0-1]";
  EXPECT_THROW(expand_hosts(many), InputError);
  EXPECT_HAS(message_of<InputError>([] { expand_hosts("n1,n[2-"); }), "character 8");
}

TEST(HostList, ANameIsCheckedBeforeItIsWritten) {
  for (const char* name : {"", "-w", "a b", "n1;id", "n[1]"}) {
    EXPECT_THROW(check_host_name(name), InputError) << name;
    EXPECT_THROW(compress_hosts({name}), InputError) << name;
  }
}

}  // namespace
}  // namespace longhaul::cluster
