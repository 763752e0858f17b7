#include "longhaul/neuron/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "longhaul/base/error.h"

namespace longhaul::neuron {
namespace {

using Given = std::map<std::string, std::string>;

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
  EXPECT_EQ(settled({.local_rank = 5, .local_ranks = 64}, {})["NEURON_RT_VISIBLE_CORES"],
            "5");
  EXPECT_EQ(settled({.local_rank = 1, .local_ranks = 2},
                    {{"NEURON_RT_VISIBLE_CORES", "8-11"}})["NEURON_RT_VISIBLE_CORES"],
            "9");
  // A launcher that gives each rank its own core.
  EXPECT_EQ(settled({.local_rank = 3, .local_ranks = 4},
                    {{"NEURON_RT_VISIBLE_CORES", "7"}})["NEURON_RT_VISIBLE_CORES"],
            "7");
}

TEST(Environment, MoreRanksThanCoresAreRefusedWithBothNumbers) {
  const std::string said = refusal([] {
    settled({.local_rank = 0, .local_ranks = 4}, {{"NEURON_RT_VISIBLE_CORES", "0,1"}});
  });
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
  EXPECT_EQ(settled({.efa = true}, {{"FI_PROVIDER", "tcp"}})["FI_PROVIDER"], "tcp");
}

TEST(Environment, TheCompilersFolderIsInThePathOnce) {
  const Place place{.compiler = "/env/bin/neuronx-cc"};
  EXPECT_EQ(settled(place, {{"PATH", "/usr/bin"}})["PATH"], "/env/bin:/usr/bin");
  EXPECT_EQ(settled(place, {{"PATH", "/usr/bin:/env/bin"}})["PATH"], "/usr/bin:/env/bin");
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
