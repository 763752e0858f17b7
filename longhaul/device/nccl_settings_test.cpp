#include "longhaul/device/nccl_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::device {
namespace {

const NcclSettings kOrdered = {{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}};
const NcclSettings kOrderedWithoutSharp = {{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
                                           {"NCCL_NVLS_ENABLE", "0"}};

TEST(NcclSettingsChosen, OrderAllCommunicatorsWhereNcclCanAndAPersonHasNotDecided) {
  for (const int version : {22600, 22605, 22900, 23100}) {
    const NcclChoice choice = choose_settings(version, false, {});
    EXPECT_EQ(choice.set, kOrdered) << version;
    EXPECT_TRUE(choice.warnings.empty()) << version;
  }
  for (const char* value : {"0", "1"}) {
    const NcclChoice kept =
        choose_settings(23100, false, {{"NCCL_LAUNCH_ORDER_IMPLICIT", value}});
    EXPECT_TRUE(kept.set.empty() && kept.warnings.empty()) << value;
  }
  for (const int version : {21400, 21703, 22304, 22505}) {
    const NcclChoice older = choose_settings(version, false, {});
    EXPECT_TRUE(older.set.empty()) << version;
    ASSERT_EQ(older.warnings.size(), 1U) << version;
    EXPECT_HAS(older.warnings[0], "has no NCCL_LAUNCH_ORDER_IMPLICIT (since 2.26)");
  }
}

TEST(NcclSettingsChosen, LeaveNvlinkSharpOutOfSumsThatAreToRepeat) {
  EXPECT_EQ(choose_settings(22605, true, {}).set, kOrderedWithoutSharp);
  // Before 2.17 NCCL had no such sums.
  EXPECT_TRUE(choose_settings(21602, true, {}).set.empty());
  EXPECT_EQ(choose_settings(21700, true, {}).set,
            (NcclSettings{{"NCCL_NVLS_ENABLE", "0"}}));
  // Lists that do not ask for NVLS go with it.
  for (const char* list :
       {"Ring", "^NVLS", "^nvls,nvlstree", "allreduce:tree", "ring;allreduce:^nvls"}) {
    EXPECT_EQ(choose_settings(22605, true, {{"NCCL_ALGO", list}}).set,
              kOrderedWithoutSharp)
        << list;
  }
}

TEST(NcclSettingsChosen, KeepWhatAPersonHasSetAndWarnThatSumsWillNotRepeat) {
  for (const char* list : {"NVLS", "ring,nvlstree", "ring;allreduce:NVLSTree"}) {
    const NcclChoice choice = choose_settings(22605, true, {{"NCCL_ALGO", list}});
    EXPECT_EQ(choice.set, kOrdered) << list;
    ASSERT_EQ(choice.warnings.size(), 1U) << list;
    EXPECT_HAS(choice.warnings[0],
               "run.deterministic does not hold: NCCL_ALGO=" + std::string(list));
  }
  const NcclChoice enabled = choose_settings(22605, true, {{"NCCL_NVLS_ENABLE", "1"}});
  EXPECT_EQ(enabled.set, kOrdered);
  ASSERT_EQ(enabled.warnings.size(), 1U);
  EXPECT_HAS(enabled.warnings[0], "NCCL_NVLS_ENABLE=1 lets NCCL add by NVLink SHARP");
  for (const NcclSettings& fine :
       {NcclSettings{{"NCCL_NVLS_ENABLE", "0"}},
        NcclSettings{{"NCCL_NVLS_ENABLE", "1"}, {"NCCL_ALGO", "Ring"}}}) {
    EXPECT_TRUE(choose_settings(22605, true, fine).warnings.empty());
  }
}

TEST(NcclSettingsChosen, AnOlderNcclIsSaidNotToReadTheFileThatIsNamed) {
  const NcclChoice older = choose_settings(22005, false, {{"NCCL_CONF_FILE", "/a"}});
  ASSERT_EQ(older.warnings.size(), 2U);
  EXPECT_HAS(older.warnings[1], "NCCL 2.20.5 does not read NCCL_CONF_FILE (since 2.23)");
}

/// Sets variables for one test.
class NcclSettingsRead : public testing::Test {
 protected:
  void set(const char* name, const std::string& value) {
    names_.emplace_back(name);
    ::setenv(name, value.c_str(), 1);
  }
  void TearDown() override {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(NcclSettingsRead, ComeFromTheEnvironmentAndThenFromTheFileThatItNames) {
  const TestDirectory folder;
  const fs::path file = folder / "nccl.conf";
  write_file(file,
             "# NCCL_PROTO=LL\nNCCL_ALGO=Tree\nNCCL_MAX_CTAS=8\nnothing\nPATH=/evil\n"
             "FI_PROVIDER=a=b");
  set("NCCL_CONF_FILE", file.string());
  set("NCCL_ALGO", "Ring");
  const NcclSettings found = nccl_settings();
  EXPECT_EQ(found.at("NCCL_ALGO"), "Ring");
  EXPECT_EQ(found.at("NCCL_MAX_CTAS"), "8");
  EXPECT_EQ(found.at("FI_PROVIDER"), "a=b");
  EXPECT_FALSE(found.contains("NCCL_PROTO"));
  EXPECT_FALSE(found.contains("PATH"));
  EXPECT_EQ(settings_of_sums(found), " NCCL_ALGO=Ring NCCL_MAX_CTAS=8");
}

TEST_F(NcclSettingsRead, AreThoseOfTheFileWhereTheEnvironmentLacksThem) {
  const TestDirectory folder;
  write_file(folder / "nccl.conf", "NCCL_NVLS_ENABLE=1\nNCCL_LAUNCH_ORDER_IMPLICIT=0\n");
  set("NCCL_CONF_FILE", (folder / "nccl.conf").string());
  // The environment would replace what the file says.
  const std::vector<std::string> warnings = prepare_nccl(22605, true);
  EXPECT_EQ(std::getenv("NCCL_NVLS_ENABLE"), nullptr);
  EXPECT_EQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), nullptr);
  EXPECT_EQ(warnings.size(), 1U);
}

TEST_F(NcclSettingsRead, AreSetWhereNobodyHas) {
  set("NCCL_LAUNCH_ORDER_IMPLICIT", "");
  set("NCCL_NVLS_ENABLE", "");
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  ::unsetenv("NCCL_NVLS_ENABLE");
  EXPECT_TRUE(prepare_nccl(22605, true).empty());
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  EXPECT_EQ(settings_of_sums(nccl_settings()), " NCCL_NVLS_ENABLE=0");
}

/// Compares the settings of ranks. Returns the error; empty where there is none.
std::string compared(const std::vector<NcclSettings>& of_ranks) {
  try {
    comm::run_fake_ranks(static_cast<int>(of_ranks.size()),
                         [&](const std::shared_ptr<comm::Communicator>& world) {
                           check_same_settings(
                               of_ranks[static_cast<size_t>(world->rank())], *world);
                         });
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(NcclSettingsOfRanks, ThatDifferAreRefusedByNameValueAndRank) {
  const NcclSettings ring = {{"NCCL_ALGO", "Ring"}, {"FI_PROVIDER", "efa"}};
  EXPECT_EQ(compared({ring, ring, ring}), "");
  const std::string values =
      compared({ring, ring, {{"NCCL_ALGO", "Tree"}, {"FI_PROVIDER", "efa"}}});
  EXPECT_HAS(values, "NCCL_ALGO is \"Ring\" on ranks 0, 1, and \"Tree\" on rank 2; set");
  EXPECT_EQ(values.find("FI_PROVIDER"), std::string::npos) << values;
  const std::string absent = compared({{{"NCCL_ALGO", "Ring"}}, {}});
  EXPECT_HAS(absent, "NCCL_ALGO is not set on rank 1, and \"Ring\" on rank 0");
  const std::string two =
      compared({{{"A", "1"}, {"NCCL_ALGO", ""}, {"FI_X", "a b=c"}}, {}});
  EXPECT_HAS(two,
             "FI_X is not set on rank 1, and \"a b=c\" on rank 0; NCCL_ALGO is not "
             "set on rank 1, and \"\" on rank 0");
}

TEST(NcclSettingsOfRanks, ThatNameInterfacesAndFilesOfTheMachineMayDiffer) {
  for (const char* name :
       {"NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX",
        "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_HOSTID", "NCCL_TOPO_FILE",
        "NCCL_TOPO_DUMP_FILE", "NCCL_CONF_FILE", "FI_LOG_LEVEL", "FI_TCP_IFACE"}) {
    EXPECT_EQ(compared({{{name, "a"}}, {{name, "b"}}, {}}), "") << name;
  }
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NET", "NCCL_IB_DISABLE",
                           "NCCL_MAX_CTAS", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"}) {
    EXPECT_HAS(compared({{{name, "a"}}, {{name, "b"}}}), name);
  }
}

TEST(NcclPlugins, ThatAreNamedAndAbsentAreRefused) {
  const std::string net =
      message_of<ConfigError>([] { check_plugins({{"NCCL_NET_PLUGIN", "nowhere"}}); });
  EXPECT_HAS(net,
             "NCCL_NET_PLUGIN=nowhere names a plug-in of NCCL that cannot be loaded");
  EXPECT_HAS(net, "libnccl-net-nowhere.so");
  EXPECT_HAS(net, "put the plug-in's directory into LD_LIBRARY_PATH");
  EXPECT_HAS(message_of<ConfigError>(
                 [] { check_plugins({{"NCCL_TUNER_PLUGIN", "/nowhere/libtuner.so"}}); }),
             "NCCL_TUNER_PLUGIN=/nowhere/libtuner.so");
  // These name a library that is there, or none.
  for (const char* fine :
       {"./libfake_nccl_23100.so", "none", "", "none, ./libfake_nccl_23100.so"}) {
    EXPECT_TRUE(check_plugins({{"NCCL_NET_PLUGIN", fine}}).empty()) << fine;
  }
}

TEST(NcclPlugins, OfAFabricThatAreAbsentAreWarnedOf) {
  const auto warnings = check_plugins({{"FI_PROVIDER", "efa"}});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_HAS(warnings[0],
             "FI_PROVIDER=efa is set, but NCCL finds no plug-in for libfabric");
  EXPECT_TRUE(check_plugins({{"FI_PROVIDER", "efa"}, {"NCCL_NET", "IB"}}).empty());
  EXPECT_TRUE(check_plugins({}).empty());
}

}  // namespace
}  // namespace longhaul::device
