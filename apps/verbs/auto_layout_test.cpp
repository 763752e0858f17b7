#include "apps/verbs/auto_layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "apps/new_file.h"
#include "longhaul/base/file.h"
#include "longhaul/config/load.h"
#include "longhaul/config/rules.h"
#include "tests/support/settings.h"

namespace longhaul::apps {
namespace {

constexpr const char* kMachine = R"([machine]
device = "some GPU"
[peak]
bf16 = 1e14
memory = 1e12
[efficiency]
products = 0.8
attention = 0.4
memory = 0.9
[inside]
bytes_per_s = 1e11
[between]
bytes_per_s = 1e9
[node]
ranks = 2
device_bytes = 80e9
host_bytes = 1e12
)";

using Sets = std::vector<std::string>;

fs::path new_directory() {
  std::string name = (fs::temp_directory_path() / "longhaul_auto_XXXXXX").string();
  return ::mkdtemp(name.data());
}

/// A run with parallel.auto in a directory of its own.
class AutoRun : public ::testing::Test {
 protected:
  AutoRun() {
    write_text_durable(machine_, kMachine);
    sets_ = {
        "parallel.auto=true", "run.dir=" + (dir_.path() / "run").string(),
        "model.config=" +
            (source_dir() / "tests/fixtures/configs/llama31-8b-instruct.json").string()};
  }

  RunConfig config(const Sets& more = {}) const {
    Sets sets = sets_;
    sets.insert(sets.end(), more.begin(), more.end());
    return accepted("", sets).config;
  }
  std::optional<AutoLayout> chosen(const RunConfig& config, int64_t nodes) const {
    return auto_layout(config, {machine_.string(), nodes});
  }

  ScratchPath dir_{new_directory()};
  fs::path machine_ = dir_.path() / "machine.toml";
  Sets sets_;
};

TEST_F(AutoRun, IsTheSameForTheSameInputs) {
  const auto once = chosen(config(), 4);
  const auto again = chosen(config(), 4);
  ASSERT_TRUE(once && again);
  EXPECT_EQ(once->sets, again->sets);
  EXPECT_EQ(once->node_ranks, 2);
  EXPECT_EQ(once->hardware, machine_.string());
  const RunConfig resolved = config(once->sets);
  EXPECT_FALSE(resolved.parallel.undecided());
  EXPECT_TRUE(config::broken_by_ranks(resolved, 8).empty());
  EXPECT_EQ(once->text, chosen_text(resolved));
  ASSERT_TRUE(resolved.parallel.chosen);
  EXPECT_EQ(resolved.parallel.chosen->ranks, 8);
  EXPECT_GT(resolved.parallel.chosen->step_s, 0.0);
}

TEST_F(AutoRun, IsNothingWithoutTheSetting) {
  EXPECT_FALSE(chosen(config({"parallel.auto=false"}), 4));
}

TEST_F(AutoRun, KeepsWhatIsGiven) {
  const Sets given = {"parallel.pp=2", "parallel.pipeline=gpipe", "parallel.zero=2",
                      "memory.recompute=full"};
  const auto layout = chosen(config(given), 4);
  ASSERT_TRUE(layout);
  for (const std::string& set : layout->sets) {
    EXPECT_FALSE(
        set.starts_with("parallel.pp=") || set.starts_with("memory.recompute=") ||
        set.starts_with("parallel.pipeline=") || set.starts_with("parallel.zero="))
        << set;
  }
  Sets all = given;
  all.insert(all.end(), layout->sets.begin(), layout->sets.end());
  const RunConfig resolved = config(all);
  EXPECT_EQ(resolved.parallel.pp, 2);
  EXPECT_EQ(resolved.parallel.pipeline, PipelineKind::GPipe);
  EXPECT_TRUE(config::broken_by_ranks(resolved, 8).empty());
  // A layout without the given settings is at least as fast.
  const RunConfig free = config(chosen(config(), 4)->sets);
  EXPECT_LE(free.parallel.chosen->step_s, resolved.parallel.chosen->step_s);
}

TEST_F(AutoRun, StaysWhatItWasWhenTheRunHasBegun) {
  RunConfig begun = config(chosen(config(), 4)->sets);
  // A layout that is not the fastest, as another version may have chosen it.
  begun.memory.recompute = RecomputeKind::Full;
  fs::create_directories(begun.run.dir);
  write_text_durable(begun.run.dir / "config.toml", to_toml(begun));
  const auto same = chosen(config(), 4);
  EXPECT_EQ(config(same->sets).memory.recompute, RecomputeKind::Full);
  // Without a word about the machine it is the machine of that choice.
  EXPECT_EQ(auto_layout(config(), {.nodes = 4})->sets, same->sets);
  // Other ranks, and other given settings, are another choice.
  EXPECT_NE(config(chosen(config(), 2)->sets).memory.recompute, RecomputeKind::Full);
  const Sets given = {"memory.recompute=none"};
  EXPECT_EQ(chosen(config(given), 4)->sets.size(), same->sets.size() - 1);
}

TEST_F(AutoRun, OfARunsOwnFileIsOverriddenBySetsAndNeedsNoProfile) {
  const RunConfig begun = config(chosen(config(), 4)->sets);
  const fs::path file = dir_.path() / "config.toml";
  write_text_durable(file, to_toml(begun));
  const Sets given = {"memory.recompute=full"};
  for (const int64_t nodes : {4, 2}) {
    const auto layout = chosen(load_run_config(file, given).config, nodes);
    ASSERT_TRUE(layout);
    EXPECT_FALSE(layout->sets.empty());
    for (const std::string& set : layout->sets) {
      EXPECT_FALSE(set.starts_with("memory.recompute=")) << set;
    }
  }
  fs::remove(machine_);
  const auto same = auto_layout(load_run_config(file, {}).config, {.ranks = 8});
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->sets.empty());
  EXPECT_EQ(same->text, chosen_text(begun));
}

TEST_F(AutoRun, IsChosenAgainForFewerNodes) {
  Sets sets = sets_;
  const auto first = chosen(config(), 4);
  sets.insert(sets.end(), first->sets.begin(), first->sets.end());
  const RunConfig submitted = accepted("", sets).config;
  StartLayouts layouts(submitted, sets, 2);
  EXPECT_EQ(layouts.on(4), sets);
  ASSERT_TRUE(layouts.fits(2));
  const Sets fewer = layouts.on(2);
  const RunConfig shrunk = accepted("", fewer).config;
  EXPECT_EQ(shrunk.parallel.chosen->ranks, 4);
  EXPECT_EQ(shrunk.parallel.chosen->settings, submitted.parallel.chosen->settings);
  EXPECT_TRUE(config::broken_by_ranks(shrunk, 4).empty());
  // A run that begins on so many nodes gets the same layout.
  EXPECT_EQ(shrunk.parallel.tp, config(chosen(config(), 2)->sets).parallel.tp);
  // The layout of all nodes needs no profile any more; another number of nodes does.
  fs::remove(machine_);
  EXPECT_EQ(layouts.on(4), sets);
  EXPECT_EQ(layouts.on(2), fewer);
  EXPECT_FALSE(layouts.fits(1));
}

TEST_F(AutoRun, WithoutAutoANumberOfNodesFitsWhereTheBatchDivides) {
  const RunConfig plain = config({"parallel.auto=false"});
  StartLayouts layouts(plain, {"batch.global_size=8"}, 2);
  EXPECT_TRUE(layouts.fits(2));
  EXPECT_FALSE(layouts.fits(3));  // eight sequences over six ranks
  EXPECT_EQ(layouts.on(3), (Sets{"batch.global_size=8"}));
}

TEST_F(AutoRun, SaysWhatItLacks) {
  const auto said = [&](const AutoCall& call, const Sets& more = {}) {
    return message_of<ConfigError>([&] { auto_layout(config(more), call); });
  };
  EXPECT_NE(said({.nodes = 4})
                .find("parallel.auto = true needs the machine: give "
                      "--hardware NAME or FILE, or set run.hardware"),
            std::string::npos);
  const Sets narrow = {"parallel.tp=1", "parallel.zero=0", "parallel.pp=1",
                       "batch.global_size=8"};
  const std::string nearest = said({machine_.string(), 4}, narrow);
  EXPECT_NE(nearest.find("parallel.auto finds no layout for 8 ranks of "),
            std::string::npos)
      << nearest;
  EXPECT_NE(nearest.find(", with parallel.tp, parallel.pp, parallel.zero as given: the "
                         "nearest lacks "),
            std::string::npos)
      << nearest;
  EXPECT_NE(said({machine_.string(), 4}, {"parallel.tp=3"}).find("breaks a rule"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul::apps
