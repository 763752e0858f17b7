#include "longhaul/config/load.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

/// Returns the settings of an adapter to which nothing is missing, and `more`.
std::vector<std::string> with_adapter(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"adapter.kind=lora", "adapter.rank=8",
                                   "adapter.alpha=16", "init.weights=models/llama"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(AdapterRules, AnAdapterNeedsItsNumbersAndABase) {
  EXPECT_DOUBLE_EQ(accepted("", with_adapter({})).config.adapter.scale(), 2.0);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"adapter.rank=", "adapter.rank is not given"},
      {"adapter.alpha=", "adapter.alpha is not given"},
      {"adapter.alpha=1e300", "is not a positive number in fp32"},
      {"adapter.alpha=1e-300", "is not a positive number in fp32"},
      {"adapter.modules=[]", "adapter.modules is an empty list"},
      {"init.weights=", "set init.weights"},
      {"optimizer.kind=lamb", "the first norm of lora_B is 0"},
      {"optimizer.groups=[{match=\"embed\",frozen=true}]", "freezes all of the model"},
  };
  for (const auto& [set, words] : cases) {
    const std::string message = refused("", with_adapter({set}));
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  EXPECT_NE(refused("", {"init.adapter=a"}).find("init.adapter needs [adapter]"),
            std::string::npos);
}

TEST(AdapterRules, KeysWithoutAKindAreToldToHaveNoEffect) {
  EXPECT_EQ(accepted("", {"adapter.rank=4", "adapter.modules=q_proj"}).warnings.size(),
            2);
  EXPECT_TRUE(accepted("", with_adapter({"adapter.save=lm_head"})).warnings.empty());
}

std::vector<std::string> on_pairs(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"data.pack=whole", "preference.loss=sigmoid"});
  return sets;
}

TEST(Preference, EachKeyReachesItsOwnMember) {
  const PreferenceSection p =
      accepted(
          "", on_pairs({"preference.loss=simpo", "preference.beta=2.5",
                        "preference.label_smoothing=0.25", "preference.simpo_gamma=1.5"}))
          .config.preference;
  EXPECT_EQ(p.loss, PreferenceLoss::Simpo);
  EXPECT_EQ(p.beta, 2.5);
  EXPECT_EQ(p.label_smoothing, 0.25);
  EXPECT_EQ(p.simpo_gamma, 1.5);
  EXPECT_FALSE(p.has_reference());
  const PreferenceSection none = accepted("").config.preference;
  EXPECT_FALSE(none.loss || none.has_reference());
  for (const char* name :
       {"sigmoid", "ipo", "hinge", "robust", "apo_zero", "sigmoid_norm"}) {
    const auto sets = on_pairs({std::string("preference.loss=") + name});
    EXPECT_TRUE(accepted("", sets).config.preference.has_reference()) << name;
  }
  EXPECT_FALSE(
      accepted("", on_pairs({"preference.loss=orpo"})).config.preference.has_reference());
}

TEST(Preference, IsWrittenAndReadBack) {
  const RunConfig config = accepted("", on_pairs({"preference.beta=0.5"})).config;
  const RunConfig again = parse_run_config(to_toml(config), "saved").config;
  EXPECT_EQ(again.preference.loss, PreferenceLoss::Sigmoid);
  EXPECT_EQ(again.preference.beta, 0.5);
}

TEST(Preference, RefusesSettingsThatCannotTrain) {
  EXPECT_HAS(refused("[preference]\nloss = \"sigmoid\"\n"),
             "run.toml:14:8: [preference] needs both sides of a pair in one row; set "
             "data.pack = \"whole\"");
  EXPECT_HAS(refused("", on_pairs({"preference.loss=dpo"})),
             "preference.loss: \"dpo\" is not one of \"sigmoid\", \"ipo\", ");
  EXPECT_HAS(refused("", on_pairs({"preference.beta=0"})),
             "preference.beta = 0: must be");
  EXPECT_HAS(
      refused("", on_pairs({"preference.loss=robust", "preference.label_smoothing=0.5"})),
      "choose a value below 0.5");
  EXPECT_HAS(refused("", on_pairs({"optimizer.z_loss=1e-4"})),
             "optimizer.z_loss = 0.0001 belongs to a loss over tokens");
}

TEST(Preference, WarnsOfSettingsWithoutEffect) {
  const auto warning = [](const std::vector<std::string>& sets) {
    const auto warnings = accepted("", sets).warnings;
    return warnings.size() == 1 ? warnings[0] : std::to_string(warnings.size());
  };
  EXPECT_HAS(warning({"preference.beta=0.5"}), "preference.loss is not given");
  EXPECT_HAS(warning(on_pairs({"preference.label_smoothing=0.1"})),
             "neither \"robust\" nor \"simpo\"");
  EXPECT_HAS(warning(on_pairs({"preference.simpo_gamma=0.1"})), "is not \"simpo\"");
  EXPECT_HAS(warning(on_pairs({"adapter.kind=lora", "adapter.rank=4", "adapter.alpha=8",
                               "init.weights=models/llama", "adapter.dropout=0.1"})),
             "adapter.dropout has no effect: [preference] trains without dropout");
}

}  // namespace
}  // namespace longhaul
