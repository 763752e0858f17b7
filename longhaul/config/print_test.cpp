#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "longhaul/base/json.h"
#include "longhaul/config/fields.h"
#include "longhaul/config/load.h"
#include "longhaul/config/reference.h"
#include "longhaul/config/rules.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

void expect_round_trip(const LoadedConfig& loaded) {
  const std::string text = to_toml(loaded.config);
  const LoadedConfig again = parse_run_config(text, "resolved.toml");
  EXPECT_EQ(to_toml(again.config), text);
  EXPECT_TRUE(diff_configs(loaded.config, again.config).empty()) << text;
  EXPECT_EQ(config_hash(again.config), config_hash(loaded.config));
  EXPECT_EQ(again.warnings.size(), loaded.warnings.size()) << text;
}

TEST(Print, TheResolvedTextOfEveryRecipeReadsBackTheSame) {
  const fs::path recipes = source_dir() / "recipes";
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(recipes)) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    expect_round_trip(load_run_config(entry.path()));
    ++count;
  }
  EXPECT_GE(count, 2);
}

/// Returns a random value for a field as the text of a --set, by the type that the
/// reference prints; nothing for types without a random form.
std::string random_text(const config::Field& field, std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto fraction = [&] { return static_cast<double>(below(1U << 30)) / (1U << 30); };
  if (field.type == "boolean") return below(2) ? "true" : "false";
  if (field.type == "integer") return std::to_string(below(below(2) ? 4 : 4000));
  if (field.key.ends_with("_timeout_s")) return fmt::format("{}", 1 + fraction());
  if (field.key == "capture") return "{ steps = [2, 3], tensors = [\"*norm*\"] }";
  if (field.key == "expect") {
    return fmt::format("{{ tokens_per_s = {}, steps = {} }}", 1 + fraction(),
                       1 + below(9));
  }
  if (field.key == "golden") {
    return below(2) ? "{ file = \"g \\\"h\", on_miss = \"warn\" }"
                    : fmt::format("{{ losses = [{{ step = 3, loss = {} }}] }}",
                                  1 + fraction());
  }
  if (field.type == "date | date-time") {
    return below(2) ? fmt::format("2026-12-{}", 10 + below(20))
                    : fmt::format("\"2026-12-24T{}:00:30+01:00\"", 10 + below(10));
  }
  if (field.type == "array of integer") return below(2) ? "[]" : "[1, 3]";
  if (field.type == "number")
    return fmt::format("{}", fraction() * (below(2) ? 1 : 1e-4));
  if (field.type == "two numbers") return fmt::format("[{}, {}]", fraction(), fraction());
  if (field.type == "path") return fmt::format("\"a \\\"{}\\\"/b\\\\c\"", below(9));
  if (field.key == "mirror") return "\"s3://bucket/runs/a\"";
  if (field.key == "device_fallback") return below(2) ? "error" : "warn";
  if (field.key == "compile_cache") return below(2) ? "use" : "only";
  if (field.type == "string") return below(2) ? "cpu" : "cuda";
  if (field.type == "array of string") return below(2) ? "[]" : "[\"*b\\ni\", 'x\"*']";
  if (field.type == "string | array of strings") {
    return std::array{"\"*b\"", "[\"a.b\", \"c?\"]", "[\"c\"]"}[below(3)];
  }
  if (field.key == "train") {
    return fmt::format(
        "[{{ path = [\"d\", \"e*\"], weight = {}, max_epochs = {}, field = "
        "\"ids\" }}, {{ synthetic = {} }}]",
        fraction() + 0.1, fraction() + 0.5, 1 + below(99));
  }
  if (field.key == "changes") {
    return fmt::format("[{{ step = 5, weights = [{}, 0.5] }}]", fraction());
  }
  if (field.key == "faults") return "[{ step = 3, kind = \"spike\", rank = 1 }]";
  if (field.key == "delays") return "[{ phase = \"load\", seconds = 0.5 }]";
  if (field.key == "validation")
    return "[{ name = \"w\", path = [\"p\", \"q\"], field = \"ids\" }, { name = "
           "\"x\", path = \"r\" }]";
  if (field.key == "tasks") return "[{ name = \"t\", path = \"samples.jsonl\" }]";
  if (field.key == "groups") {
    return fmt::format(
        "[{{ match = \"e\", lr_scale = {}, weight_decay = {} }}, {{ match = "
        "\"*x\", frozen = true }}]",
        fraction(), fraction());
  }
  if (field.key == "override") {
    return fmt::format(
        "{{ num_hidden_layers = {}, rope_scaling = {{ rope_type = "
        "\"linear\", factor = {} }}, eos_token_id = [1, 2] }}",
        below(9), fraction());
  }
  if (field.key == "resume") {
    return std::array{"latest", "never", "17", "\"runs/x\""}[below(4)];
  }
  std::vector<std::string> choices;  // "a" | "b" ...
  for (size_t at = field.type.find('"'); at != std::string::npos;) {
    const size_t end = field.type.find('"', at + 1);
    choices.push_back(field.type.substr(at, end - at + 1));
    at = field.type.find('"', end + 1);
  }
  return choices.empty() ? "" : choices[below(choices.size())];
}

TEST(Print, ARandomWalkOverEveryFieldReadsBackTheSame) {
  std::mt19937_64 random(20240517);
  RunConfig shape;
  std::vector<std::pair<std::string, config::Field>> all;
  for (const auto& section : config::sections_of(shape)) {
    for (const config::Field& field : section.fields) {
      if (field.built.size() != 1)
        all.emplace_back(section.name + "." + field.key, field);
    }
  }
  std::set<std::string> moved;
  int steps = 0;
  std::vector<std::string> sets;
  // The value of run.epochs never changes in this test, since run.steps excludes it.
  for (int i = 0; i < 2000 || (i < 10000 && moved.size() + 1 < all.size()); ++i) {
    const auto& [name, field] = all[random() % all.size()];
    std::vector<std::string> more = sets;
    more.push_back(name + "=" + random_text(field, random));
    if (name == "run.until" || name == "run.budget") {
      more.insert(more.end(), {"schedule.kind=wsd",
                               "schedule.continue=", "run.price_per_node_hour=98.32"});
    }
    if (name == "adapter.kind" || name == "init.adapter") {
      more.insert(more.end(), {"adapter.kind=dora", "adapter.rank=4", "adapter.alpha=8",
                               "init.weights=w"});
    }
    if (name.starts_with("preference.")) more.emplace_back("data.pack=whole");
    LoadedConfig loaded;
    try {
      loaded = accepted("", more);
    } catch (const ConfigError&) {
      continue;  // two settings that exclude each other
    }
    sets = more;
    if (sets.size() > 25) sets.erase(sets.begin(), sets.begin() + 12);
    try {
      accepted("", sets);
    } catch (const ConfigError&) {
      sets.clear();
    }
    expect_round_trip(loaded);
    if (HasFailure()) FAIL() << name;
    moved.insert(name);
    ++steps;
  }
  EXPECT_GT(steps, 500);
  for (const auto& [name, field] : all) {
    if (name == "run.epochs") continue;
    EXPECT_TRUE(moved.contains(name)) << name;
  }
}

TEST(Print, SettingOneKeyChangesThatKeyAlone) {
  std::mt19937_64 random(7);
  const RunConfig base = accepted("").config;
  RunConfig shape;
  int changed = 0;
  for (const auto& section : config::sections_of(shape)) {
    for (const config::Field& field : section.fields) {
      const std::string name = section.name + "." + field.key;
      for (int i = 0; i < 20; ++i) {
        RunConfig other;
        try {
          other = accepted("", {name + "=" + random_text(field, random)}).config;
        } catch (const ConfigError&) {
          continue;
        }
        for (const ConfigChange& change : diff_configs(base, other)) {
          // Loading sets further settings that follow from optimizer.kind, from the
          // warm-up and from data.pack.
          const bool of_lamb =
              name == "optimizer.kind" &&
              (change.key == "optimizer.betas" || change.key == "optimizer.eps" ||
               change.key == "optimizer.weight_decay");
          const bool follows =
              change.key == "schedule.warmup_start" || change.key == "schedule.decay" ||
              (name == "data.pack" && change.key == "data.document_mask");
          if (follows || of_lamb) continue;
          EXPECT_EQ(change.key, name);
          ++changed;
        }
      }
    }
  }
  EXPECT_GT(changed, 300);
}

TEST(Print, EpochsReadBackTheSame) {
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000"), 12, "epochs = 0.1");
  expect_round_trip(parse_run_config(text, "run.toml"));
}

TEST(Print, TheHashTellsEverySettingAndNothingElse) {
  const std::string base = config_hash(accepted("").config);
  EXPECT_EQ(base.size(), 32U);
  EXPECT_EQ(config_hash(accepted("\n# a comment\n").config), base);
  EXPECT_EQ(config_hash(accepted("", {"run.seed=1234"}).config), base);
  EXPECT_NE(config_hash(accepted("", {"run.seed=1235"}).config), base);
  EXPECT_NE(config_hash(accepted("", {"optimizer.lr=0.0010000000000000002"}).config),
            base);
}

TEST(Diff, NamesKeyBothValuesAndWhatAResumeMayDo) {
  const RunConfig a = accepted("").config;
  const RunConfig b =
      accepted("", {"optimizer.lr=2e-3", "run.seed=7", "log.every=5"}).config;
  const auto changes = diff_configs(a, b);
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].key, "run.seed");
  EXPECT_EQ(changes[0].old_value, "1234");
  EXPECT_EQ(changes[0].new_value, "7");
  EXPECT_EQ(changes[0].resume, ResumeClass::Match);
  EXPECT_EQ(changes[1].key, "optimizer.lr");
  EXPECT_EQ(changes[1].resume, ResumeClass::Logged);
  EXPECT_EQ(changes[2].key, "log.every");
  EXPECT_EQ(changes[2].resume, ResumeClass::Free);
}

TEST(Resume, ReturnsLoggedChangesAndRefusesMatchKeysWithBothValues) {
  const RunConfig saved = accepted("").config;
  const auto logged =
      check_resume(saved, accepted("", {"optimizer.lr=2e-3", "log.every=5"}).config);
  ASSERT_EQ(logged.size(), 1U);
  EXPECT_EQ(logged[0].key, "optimizer.lr");
  EXPECT_EQ(
      message_of<ConfigError>(
          [&] { check_resume(saved, accepted("", {"run.seed=7"}).config); }),
      "[config] --set run.seed=7: run.seed = 7, but the checkpoint was made with 1234; "
      "a resume must keep it (or start a new run with init.weights)");
}

TEST(Reference, ListsEveryKeyWithTypeDefaultAndMeaning) {
  const std::string text = config_reference_text();
  EXPECT_NE(text.find("--set section.key= removes the key"), std::string::npos);
  RunConfig shape;
  for (const auto& section : config::sections_of(shape)) {
    EXPECT_NE(text.find("\n[" + section.name + "]"), std::string::npos) << section.name;
    for (const config::Field& field : section.fields) {
      EXPECT_FALSE(field.meaning.empty()) << field.key;
      EXPECT_NE(text.find("\n  " + field.key + " "), std::string::npos) << field.key;
      const bool shows_default = field.required || field.get() || !field.absent.empty();
      EXPECT_TRUE(shows_default) << section.name << "." << field.key;
    }
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 100U) << text.substr(at, end - at);
    at = end + 1;
  }
}

TEST(Reference, AsJsonHoldsTheSameKeys) {
  const Json list = parse_json(config_reference_json(), "reference");
  RunConfig shape;
  EXPECT_EQ(list.size(), config::all_names(config::sections_of(shape)).size());
  const auto lr = std::ranges::find_if(
      list, [](const Json& item) { return item.at("key") == "optimizer.lr"; });
  ASSERT_NE(lr, list.end());
  EXPECT_EQ(lr->at("required"), true);
  EXPECT_EQ(lr->at("rule"), "greater than 0");
  const auto compute = std::ranges::find_if(
      list, [](const Json& item) { return item.at("key") == "precision.compute"; });
  EXPECT_EQ(compute->at("available"), "not available yet, other than \"fp32\", \"bf16\"");
}

TEST(Reference, EveryDefaultIsAvailableAndInItsRange) {
  RunConfig shape;
  for (const auto& section : config::sections_of(shape)) {
    for (const config::Field& field : section.fields) {
      const auto value = field.get();
      if (!value || field.required) continue;
      config::Table table{{field.key, "", *value}};
      RunConfig copy;
      for (const auto& other : config::sections_of(copy)) {
        if (other.name == section.name) {
          EXPECT_NO_THROW(config::set_fields(other.fields, table, section.name))
              << section.name << "." << field.key;
        }
      }
    }
  }
}

TEST(ChosenLayout, IsReadBackAsItIsWritten) {
  const std::string chosen =
      "parallel.chosen={ ranks = 4, hardware = \"p5\", step_s = 12.25, settings = "
      "[\"parallel.tp\", \"batch.micro_size\"] }";
  const std::vector<std::string> sets = {"parallel.auto=true", "parallel.tp=2",
                                         "parallel.zero=2", "batch.micro_size=4", chosen};
  const RunConfig config = accepted("", sets).config;
  EXPECT_FALSE(config.parallel.undecided());
  EXPECT_EQ(derive_batch(config, 4).dp, 2);
  EXPECT_EQ(chosen_text(config),
            "auto chose: micro_size 4, tp 2; 12.25 s a step predicted, on 4 ranks of p5");
  // The settings that it has chosen are open for the next choice; parallel.zero is not.
  const auto open = config::open_settings(config);
  EXPECT_EQ(open.size(), config::kLayoutSettings.size() - 1);
  EXPECT_EQ(std::ranges::count(open, "parallel.zero"), 0);
  // The choice is read back from the run's own file and from the words of a command line.
  EXPECT_EQ(parse_run_config(to_toml(config), "saved").config.parallel.chosen,
            config.parallel.chosen);
  const std::vector<std::string> keys = {"parallel.chosen", "parallel.tp"};
  EXPECT_EQ(as_sets(config, keys), (std::vector<std::string>{"parallel.tp=2", chosen}));
  RunConfig copy = accepted("", {"parallel.auto=true"}).config;
  copy_settings(config, copy, keys);
  EXPECT_EQ(copy.parallel.tp, 2);
  EXPECT_EQ(copy.parallel.zero, 1);
  EXPECT_EQ(copy.parallel.chosen, config.parallel.chosen);
  EXPECT_EQ(accepted("", {"parallel.tp=1", chosen}).warnings,
            std::vector<std::string>{"--set " + chosen +
                                     ": parallel.chosen has no effect: parallel.auto is "
                                     "false"});
  EXPECT_EQ(chosen_text(accepted("", {chosen}).config), "");
  EXPECT_NE(refused("", {"parallel.chosen={ranks = 4}"})
                .find("parallel.chosen: needs ranks, hardware, step_s and settings"),
            std::string::npos);
  EXPECT_NE(refused("", {"parallel.chosen={ranks = 4, hardware = \"a\", step_s = 1, "
                         "settings = [\"run.seed\"]}"})
                .find("run.seed is no setting that parallel.auto chooses"),
            std::string::npos);
}

}  // namespace
}  // namespace longhaul
