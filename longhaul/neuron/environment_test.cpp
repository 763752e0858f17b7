#include "longhaul/neuron/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "longhaul/base/error.h"

namespace longhaul::neuron {
namespace {

using Given = std::map<std::string, std::string>;
constexpr const char* kCores = "NEURON_RT_VISIBLE_CORES";

/// Returns the variables of a rank after the program has set what it needs.
Given settled(const Place& place, Given given) {
  const auto set = variables_for(place, [&](const std::string& name) {
    const auto found = given.find(name);
    return found == given.end() ? std::string() : found->second;
  });
  for (const auto& [name, value] : set) given[name] = value;
  return given;
}

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

Environment whole() {
  return {"/env/bin/python",
          "3.12.3",
          "/usr/lib/libpython3.12.so.1.0",
          "2.13.0+cpu",
          "/env/torch/lib/libtorch_cpu.so",
          "/env/torch_neuronx",
          true,
          "2.13.3.0",
          "/env/bin/neuronx-cc",
          "2.21",
          "libnrt.so.2.31.0"};
}

TEST(Environment, ARankTakesTheCoreOfItsPlace) {
  const auto core = [](int rank, const std::vector<std::string>& visible) {
    const std::string own = visible.empty() ? "" : visible[rank];
    return settled({.local_rank = rank, .visible = visible}, {{kCores, own}})[kCores];
  };
  EXPECT_EQ(core(5, std::vector<std::string>(64)), "5");
  EXPECT_EQ(core(1, {"8-11", "8-11"}), "9");
  // Launchers that give each rank its own core, or cores.
  EXPECT_EQ(core(1, {"7", "5"}), "5");
  EXPECT_EQ(core(1, {"0-1", "2-3"}), "2");
  EXPECT_EQ(core(0, {}), "");  // all cores are seen
}

TEST(Environment, RanksThatWouldTakeTheSameCoreAreRefusedWithWhatToDo) {
  for (const std::vector<std::string>& visible :
       std::vector<std::vector<std::string>>{{"3", "3"}, {"1", ""}, {"1", "2", "1,3"}}) {
    const std::string said = refusal([&] { (void)cores_of(visible); });
    EXPECT_NE(said.find("would take the same core"), said.npos) << said;
    EXPECT_NE(said.find("unset the variable"), said.npos) << said;
  }
  EXPECT_NE(refusal([] { (void)cores_of({"3", "3"}); }).find("(\"0-1\")"),
            std::string::npos);
}

TEST(Environment, MoreRanksThanCoresAreRefusedWithBothNumbers) {
  const std::string said = refusal([] { (void)cores_of({"0,1", "0,1", "0,1", "0,1"}); });
  EXPECT_NE(said.find("4 ranks"), said.npos) << said;
  EXPECT_NE(said.find("2 cores"), said.npos) << said;
}

TEST(Environment, WhatIsNoListOfCoresIsRefused) {
  for (const char* text : {"a", "3-1", "-1", "0--2", "1,", "0-99999"}) {
    const std::string said = refusal([&] { (void)parse_cores(text); });
    if (std::string(text) == "1,") {
      EXPECT_EQ(said, "not refused");
      continue;
    }
    EXPECT_NE(said.find("is no list of cores"), said.npos) << text << ": " << said;
  }
  EXPECT_EQ(parse_cores("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
}

TEST(Environment, WhatPeopleHaveSetStaysAndAContradictionIsRefused) {
  EXPECT_EQ(settled({}, {})["NEURON_LAUNCH_BLOCKING"], "0");
  EXPECT_EQ(settled({}, {{"NEURON_LAUNCH_BLOCKING", "1"}})["NEURON_LAUNCH_BLOCKING"],
            "1");
  EXPECT_EQ(settled({.cache = "/shared"}, {})["TORCH_NEURONX_NEFF_CACHE_DIR"], "/shared");
  const char* fallback = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS";
  EXPECT_EQ(settled({}, {})[fallback], "1");
  const std::string said = refusal([&] { settled({}, {{fallback, "0"}}); });
  EXPECT_NE(said.find(fallback), said.npos) << said;
}

TEST(Environment, EfaIsAskedForOnlyWhereItsDevicesAre) {
  EXPECT_FALSE(settled({}, {}).contains("FI_PROVIDER"));
  EXPECT_EQ(settled({.efa = true}, {})["FI_PROVIDER"], "efa");
  EXPECT_EQ(settled({.efa = true}, {})["FI_EFA_USE_DEVICE_RDMA"], "1");
  EXPECT_EQ(settled({.efa = true}, {{"FI_PROVIDER", "tcp"}})["FI_PROVIDER"], "tcp");
}

TEST(Environment, OldKernelsAreToldThatTheProcessForksOverEfa) {
  for (const char* kernel : {"5.10.0-28-cloud-amd64", "4.14.355-1.amzn2", "5.14.9"}) {
    EXPECT_EQ(settled({.efa = true, .kernel = kernel}, {})["FI_EFA_FORK_SAFE"], "1");
    EXPECT_FALSE(settled({.kernel = kernel}, {}).contains("FI_EFA_FORK_SAFE"));
  }
  for (const char* kernel : {"5.15.0-1084-aws", "6.1.0-18-amd64", "10.0.1"}) {
    EXPECT_FALSE(
        settled({.efa = true, .kernel = kernel}, {}).contains("FI_EFA_FORK_SAFE"));
  }
  EXPECT_EQ(settled({.efa = true, .kernel = "5.10"},
                    {{"FI_EFA_FORK_SAFE", "0"}})["FI_EFA_FORK_SAFE"],
            "0");
  EXPECT_FALSE(kernel_version().empty());
}

TEST(Environment, TheCompilersFolderIsTheFirstInThePath) {
  const Place place{.compiler = "/env/bin/neuronx-cc"};
  EXPECT_EQ(settled(place, {{"PATH", "/usr/bin"}})["PATH"], "/env/bin:/usr/bin");
  EXPECT_EQ(settled(place, {{"PATH", "/env/bin:/usr/bin"}})["PATH"], "/env/bin:/usr/bin");
  // Another compiler may stand before it.
  EXPECT_EQ(settled(place, {{"PATH", "/usr/bin:/env/bin"}})["PATH"],
            "/env/bin:/usr/bin:/env/bin");
}

TEST(Environment, EachPartThatIsMissingOrUnfitIsNamed) {
  EXPECT_EQ(refusal([] { check_environment(whole(), "2.13.0"); }), "not refused");
  const auto said = [](const auto& change) {
    Environment environment = whole();
    change(environment);
    return refusal([&] { check_environment(environment, "2.13.0"); });
  };
  const std::pair<std::string, std::string> cases[] = {
      {said([](Environment& e) { e.torch.clear(); }), "has no PyTorch"},
      {said([](Environment& e) { e.torch = "2.14.0"; }), "PyTorch 2.14.0"},
      {said([](Environment& e) { e.backend.clear(); }), "has no torch_neuronx"},
      {said([](Environment& e) { e.native = false; }), "not the native backend"},
      {said([](Environment& e) { e.backend_version = "2.9.1.0"; }), "older than PyTorch"},
      {said([](Environment& e) { e.backend_version = "2.14.3.0"; }),
       "newer than PyTorch"},
      {said([](Environment& e) { e.libpython.clear(); }), "no shared library libpython"},
      {said([](Environment& e) { e.compiler.clear(); }), "neuronx-cc"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_NE(text.find(part), text.npos) << text;
    EXPECT_NE(text.find("install"), text.npos) << "says not what to do: " << text;
  }
}

TEST(Environment, Trn1IsRefusedWithWhatToTake) {
  const std::string said = refusal([] { check_instance("trn1.32xlarge"); });
  EXPECT_NE(said.find("trn2"), said.npos) << said;
  EXPECT_EQ(refusal([] { check_instance("trn2.48xlarge"); }), "not refused");
}

}  // namespace
}  // namespace longhaul::neuron
