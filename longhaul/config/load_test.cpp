#include "longhaul/config/load.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "longhaul/config/fields.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

TEST(Load, RequiredKeysAloneGiveTheDocumentedDefaults) {
  const LoadedConfig loaded = accepted("");
  EXPECT_TRUE(loaded.warnings.empty());
  const RunConfig& c = loaded.config;
  EXPECT_EQ(c.run.dir, "runs/a");
  EXPECT_EQ(c.run.steps, 1000);
  EXPECT_EQ(c.run.seed, 1234);
  EXPECT_EQ(c.optimizer.lr, 1e-3);
  EXPECT_EQ(c.data.train.size(), 1U);
  EXPECT_EQ(c.data.train[0].weight, 1.0);
  EXPECT_EQ(c.batch.micro_size, 1);
  EXPECT_EQ(c.checkpoint.resume.kind, ResumeFrom::Kind::Latest);
  EXPECT_EQ(checkpoint_dir(c), fs::path("runs/a/checkpoints"));
}

TEST(Load, WhatIsReadMayBeAnAddressAndKeepsIt) {
  const LoadedConfig loaded = accepted(
      "", {"model.config=\"s3://bucket/model\"", "init.weights=\"s3://bucket/model\"",
           "data.train=[{ path = [\"s3://bucket/store\", \"data/mine\"] }]",
           "data.validation=[{ name = \"v\", path = \"s3://bucket/store-val\" }]",
           "data.cache=\"/local/nvme\"", "data.cache_gb=200"});
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.config.data.train[0].path.text(), "s3://bucket/store,data/mine");
  const std::vector<fs::path> addresses = {"s3://bucket/model", "s3://bucket/store",
                                           "s3://bucket/store-val"};
  EXPECT_EQ(addresses_of(loaded.config), addresses);
  const std::string text = to_toml(loaded.config);
  EXPECT_NE(text.find("weights = \"s3://bucket/model\""), std::string::npos) << text;
}

TEST(Load, EveryKindOfValueIsRead) {
  const RunConfig c =
      accepted(R"(betas = [0.8, 0.99]
no_decay = ["*bias", "*LayerNorm*"]
groups = [{ match = "embed", lr_scale = 0.1 }, { match = "lm_head", frozen = true }]
convention = "hf"
[precision]
compute = "fp32"
[schedule]
kind = "smp"
warmup_fraction = 0.0032
decay = "plateau"
plateau_fraction = 0.25
[checkpoint]
resume = 250
[validation]
every = 50
)",
               {"data.validation=[{ name = \"wiki\", path = [\"v\", \"w*\"] }]",
                "model.override={ num_hidden_layers = 4 }"})
          .config;
  EXPECT_EQ(c.optimizer.betas[1], 0.99);
  EXPECT_EQ(c.optimizer.no_decay[1], "*LayerNorm*");
  EXPECT_EQ(c.optimizer.groups[0].lr_scale, 0.1);
  EXPECT_FALSE(c.optimizer.groups[0].weight_decay.has_value());
  EXPECT_TRUE(c.optimizer.groups[1].frozen);
  EXPECT_EQ(c.optimizer.convention, AdamConvention::Hf);
  EXPECT_EQ(c.precision.compute, ComputeType::Fp32);
  EXPECT_EQ(c.schedule.kind, ScheduleKind::Smp);
  EXPECT_EQ(c.schedule.decay, DecayForm::Plateau);
  EXPECT_EQ(c.schedule.warmup_start, WarmupStart::Zero);
  EXPECT_EQ(c.checkpoint.resume, (ResumeFrom{ResumeFrom::Kind::Step, 250, {}}));
  EXPECT_EQ(c.data.validation[0].path.text(), "v,w*");
  EXPECT_EQ(c.model.override_[0], (ModelOverride{"num_hidden_layers", "4"}));
}

TEST(Load, ASetWithoutAValueTakesTheKeyOut) {
  const std::string file = R"(clip = 0.5
[init]
weights = "models/llama"
[checkpoint]
dir = "c"
resume = 250
[schedule]
warmup_steps = 7
[model.override]
vocab_size = 9
rope_theta = 2.0
)";
  EXPECT_GE(diff_configs(accepted("").config, accepted(file).config).size(), 6U);
  const RunConfig c =
      accepted(file, {"init.weights=", "checkpoint.dir= ", "checkpoint.resume=",
                      "optimizer.clip=", "schedule.warmup_steps=", "run.threads=",
                      "model.override="})
          .config;
  EXPECT_TRUE(diff_configs(accepted("").config, c).empty());
  // The last setting counts, and a key inside another one can be removed alone.
  EXPECT_EQ(accepted(file, {"init.weights=", "init.weights=w"}).config.init.weights, "w");
  const RunConfig one = accepted(file, {"model.override.rope_theta="}).config;
  ASSERT_EQ(one.model.override_.size(), 1U);
  EXPECT_EQ(one.model.override_[0].field, "vocab_size");
}

TEST(Load, OnlyKeysThatThereAreCanBeTakenOut) {
  const auto says = [](const char* set, const char* words) {
    const std::string message = refused("", {set});
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  says("init.wieghts=",
       "--set init.wieghts=: unknown key init.wieghts; did you mean init.weights?");
  says("run.dir=", "required and not given: run.dir");
  says("init.weights=\"\"",
       "init.weights is an empty path; leave the key out (--set init.weights= takes it "
       "out)");
}

void expect_told(const std::string& message, const std::string& words) {
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(Load, APathThatOnlyAShellWouldHaveReplacedIsRefusedWhereverItStands) {
  ::setenv("HOME", "/users/me", 1);
  RunConfig config;
  int paths = 0;
  for (const config::SectionFields& section : config::sections_of(config)) {
    for (const config::Field& field : section.fields) {
      if (field.type != "path") continue;
      ++paths;
      const std::string name = section.name + "." + field.key;
      for (const char* prefix : {"~", "$HOME", "${HOME}"}) {
        expect_told(refused("", {fmt::format("{}=\"{}/x\"", name, prefix)}),
                    fmt::format("{} = \"{}/x\": only a shell replaces", name, prefix));
      }
    }
  }
  EXPECT_GE(paths, 8);
  expect_told(
      refused("", {"data.train=[{path=[\"a\", \"~/b\"], weight=1.0}]"}),
      "path[1] = \"~/b\": only a shell replaces ~ and $NAME, and not in quotes, in "
      "a file or behind = of an option; longhaul takes the path as it stands; "
      "write /users/me/b");
  expect_told(refused("", {"checkpoint.resume=~/runs/a"}), "write /users/me/runs/a");
}

TEST(Load, EachKeyOfExpertsReachesItsOwnMember) {
  const RunConfig c = accepted("", {"parallel.ep=5", "experts.balance=global",
                                    "experts.balance_weight=0.02", "experts.z_loss=1e-3",
                                    "experts.warn_below=0.25"})
                          .config;
  EXPECT_EQ(c.parallel.ep, 5);
  EXPECT_EQ(c.experts.balance, BalanceKind::Global);
  EXPECT_EQ(c.experts.balance_weight, 0.02);
  EXPECT_EQ(c.experts.z_loss, 1e-3);
  EXPECT_EQ(c.experts.warn_below, 0.25);
  EXPECT_FALSE(accepted("").config.experts.balance_weight.has_value());
}

TEST(Load, EachKeyReachesItsOwnMember) {
  const RunConfig c = accepted("", {"run.stop_after=41",
                                    "run.seed=42",
                                    "run.threads=43",
                                    "run.fused=false",
                                    "run.deterministic=false",
                                    "run.device=cuda",
                                    "init.weights=w",
                                    "data.shuffle=false",
                                    "data.document_mask=true",
                                    "batch.global_size=12",
                                    "batch.micro_size=3",
                                    "parallel.zero=0",
                                    "memory.recompute=full",
                                    "precision.moments=bf16",
                                    "optimizer.eps=1e-6",
                                    "optimizer.clip=0.5",
                                    "optimizer.weight_decay=0.3",
                                    "optimizer.z_loss=1e-4",
                                    "schedule.kind=wsd",
                                    "schedule.warmup_steps=11",
                                    "schedule.min_lr=1e-5",
                                    "schedule.horizon=900",
                                    "schedule.decay_steps=13",
                                    "schedule.decay=sqrt",
                                    "schedule.constant_steps=14",
                                    "checkpoint.every=15",
                                    "checkpoint.keep=16",
                                    "checkpoint.dir=c",
                                    "log.every=17",
                                    "log.window=20",
                                    "log.tensorboard=false",
                                    "validation.every=18",
                                    "validation.batches=19"})
                          .config;
  EXPECT_EQ(c.run.stop_after, 41);
  EXPECT_EQ(c.run.seed, 42);
  EXPECT_EQ(c.run.threads, 43);
  EXPECT_FALSE(c.run.fused);
  EXPECT_EQ(c.run.deterministic, false);
  EXPECT_EQ(c.run.device, "cuda");
  EXPECT_EQ(c.init.weights, "w");
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_TRUE(c.data.document_mask);
  EXPECT_EQ(c.data.seq_len, 128);
  EXPECT_EQ(c.batch.global_size, 12);
  EXPECT_EQ(c.batch.micro_size, 3);
  EXPECT_EQ(c.parallel.zero, 0);
  EXPECT_EQ(c.memory.recompute, RecomputeKind::Full);
  EXPECT_EQ(c.precision.moments, StateType::Bf16);
  EXPECT_EQ(c.precision.gradients, StateType::Fp32);
  EXPECT_EQ(c.precision.reduce, StateType::Fp32);
  EXPECT_EQ(c.optimizer.eps, 1e-6);
  EXPECT_EQ(c.optimizer.clip, 0.5);
  EXPECT_EQ(c.optimizer.weight_decay, 0.3);
  EXPECT_EQ(c.optimizer.z_loss, 1e-4);
  EXPECT_EQ(c.schedule.kind, ScheduleKind::Wsd);
  EXPECT_EQ(c.schedule.warmup_steps, 11);
  EXPECT_EQ(c.schedule.min_lr, 1e-5);
  EXPECT_EQ(c.schedule.horizon, 900);
  EXPECT_EQ(c.schedule.decay_steps, 13);
  EXPECT_EQ(c.schedule.decay, DecayForm::Sqrt);
  EXPECT_EQ(c.schedule.constant_steps, 14);
  EXPECT_EQ(c.checkpoint.every, 15);
  EXPECT_EQ(c.checkpoint.keep, 16);
  EXPECT_EQ(checkpoint_dir(c), "c");
  EXPECT_EQ(c.log.every, 17);
  EXPECT_EQ(c.log.window, 20);
  EXPECT_FALSE(c.log.tensorboard);
  EXPECT_EQ(c.validation.every, 18);
  EXPECT_EQ(c.validation.batches, 19);
}

TEST(Load, SetReplacesTheFilesValueAndReadsWordsNumbersArraysAndTables) {
  const RunConfig c =
      accepted("", {"run.dir=runs/b", "optimizer.lr=2e-4", "optimizer.betas=[0.9, 0.98]",
                    "data.train=[{ synthetic = 64 }]", "checkpoint.resume=never",
                    "model.override.num_hidden_layers=2", "model.override.head_dim=16"})
          .config;
  EXPECT_EQ(c.run.dir, "runs/b");
  EXPECT_EQ(c.optimizer.lr, 2e-4);
  EXPECT_EQ(c.optimizer.betas[1], 0.98);
  EXPECT_EQ(c.data.train[0].synthetic, 64);
  EXPECT_EQ(c.checkpoint.resume.kind, ResumeFrom::Kind::Never);
  EXPECT_EQ(c.model.override_.size(), 2U);
}

/// A run file for a large model, with many keys in nearly every section.
constexpr std::string_view kLarge = R"([run]
dir = "runs/cpt"
steps = 30000
stop_after = 30000
seed = 1234
device = "auto"
deterministic = true
threads = 0
fused = true
[model]
config = "models/Llama-3-70B"
override = { num_hidden_layers = 4 }
[init]
weights = "models/Llama-3-70B"
[data]
seq_len = 8192
shuffle = true
document_mask = false
train = [{ path = "data/wiki", weight = 1.0 }]
validation = [{ name = "wiki", path = "data/wiki-val" }]
[batch]
global_size = 1024
micro_size = 1
[parallel]
tp = 32
pp = 8
cp = 1
ep = 1
sequence = true
pipeline = "1f1b"
virtual_stages = 1
zero = 1
shard_group = "world"
[experts]
balance = "sequence"
balance_weight = 0.02
z_loss = 0.001
warn_below = 0.4
[memory]
recompute = "selective"
offload_activations = false
[precision]
compute = "bf16"
master = "fp32"
moments = "fp32"
gradients = "fp32"
reduce = "fp32"
[optimizer]
kind = "adamw"
lr = 1.5e-5
betas = [0.9, 0.95]
eps = 1e-8
weight_decay = 0.1
groups = []
clip = 1.0
[schedule]
kind = "cosine"
warmup_steps = 2000
min_lr = 1e-6
[checkpoint]
every = 5
keep = 2
async = true
resume = "latest"
[log]
every = 1
tensorboard = true
[validation]
every = 200
batches = 10
[resilience]
on_node_loss = "spare"
[profile]
steps = []
)";

TEST(Load, EveryKeyOfTheLargeRecipeIsAccepted) {
  const LoadedConfig loaded = parse_run_config(kLarge, "70b.toml");
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.config.run.deterministic, true);
  EXPECT_EQ(loaded.config.checkpoint.every, 5);
}

TEST(Load, ArraysOfTablesAreTheSameAsInlineTables) {
  std::string text(kSmallest);
  text.replace(text.find("train = [{ path = \"data/wiki\" }]\n"), 32, "");
  text += "[[data.train]]\npath = \"a\"\nweight = 3\n[[data.train]]\nsynthetic = 5\n";
  const RunConfig config = parse_run_config(text, "run.toml").config;
  ASSERT_EQ(config.data.train.size(), 2U);
  EXPECT_EQ(config.data.train[0].weight, 3.0);
  EXPECT_EQ(config.data.train[1].synthetic, 5);
}

TEST(Load, WhatARunIsToReachIsATable) {
  const RunConfig c =
      accepted("", {"run.expect={ tokens_per_s = 29400, tolerance = 0.1, steps = 20 }",
                    "run.golden={ losses = [{ step = 10, loss = 8.5 }, { step = 20, "
                    "loss = 8 }], on_miss = \"warn\" }"})
          .config;
  EXPECT_EQ(c.run.expect, (ExpectedRate{29400.0, 0.1, 20, MissPolicy::Stop}));
  EXPECT_EQ(c.run.golden,
            (GoldenLosses{{}, {{10, 8.5}, {20, 8.0}}, 0.05, MissPolicy::Warn}));
  EXPECT_EQ(accepted("", {"run.golden={ file = \"g.txt\" }"}).config.run.golden->file,
            "g.txt");
  EXPECT_FALSE(accepted("").config.run.expect);
}

TEST(LoadRefuses, ATableOfWhatARunIsToReachThatSaysTooLittleOrTooMuch) {
  const auto refuses = [](const char* set, const char* words) {
    const std::string said = refused("", {set});
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  refuses("run.expect={ tolerance = 0.1 }", "run.expect: needs tokens_per_s");
  refuses("run.expect={ tokens_per_s = 0 }", "must be greater than 0");
  refuses("run.expect={ tokens_per_s = 5, tolerance = 1 }", "less than 1");
  refuses("run.expect={ tokens_per_s = 5, on_miss = \"stp\" }", "did you mean \"stop\"");
  refuses("run.golden={}", "run.golden: needs either file or losses, not none of them");
  refuses("run.golden={ file = \"g\", losses = [{ step = 1, loss = 2 }] }",
          "not both of them");
  refuses("run.golden={ losses = [{ step = 1 }] }", "run.golden.losses[0]: needs both");
}

TEST(LoadRefuses, AnUnknownKeyWithItsPlaceAndTheNearestName) {
  EXPECT_EQ(refused("bettas = [0.9, 0.95]\n"),
            "[config] run.toml:13:1: unknown key optimizer.bettas; did you mean betas?");
}

TEST(LoadRefuses, AKeyOfAnotherSectionNamingIt) {
  EXPECT_EQ(refused("micro_size = 2\n"),
            "[config] run.toml:13:1: unknown key optimizer.micro_size; did you mean "
            "batch.micro_size?");
}

TEST(LoadRefuses, AnUnknownKeyWithoutNeighbourListingTheValidOnes) {
  EXPECT_EQ(refused("[log]\nxylophone = 1\n"),
            "[config] run.toml:14:1: unknown key log.xylophone; valid here: every, "
            "window, tensorboard, tensorboard_dir, results, prompts, prompts_every, "
            "prompt_tokens, "
            "layer_norms_every");
}

TEST(LoadRefuses, AnUnknownKeyInsideAnInlineTable) {
  EXPECT_EQ(
      refused("groups = [{ match = \"embed\", lr_scal = 0.1 }]\n"),
      "[config] run.toml:13:30: unknown key optimizer.groups[0].lr_scal; did you mean "
      "lr_scale?");
}

TEST(LoadRefuses, AnUnknownSection) {
  EXPECT_EQ(refused("[optimiser]\nlr = 1\n"),
            "[config] run.toml:13:2: unknown section [optimiser]; did you mean "
            "[optimizer]?");
}

TEST(LoadRefuses, AKeyOutsideAnySection) {
  EXPECT_EQ(message_of<ConfigError>([] { parse_run_config("steps = 3\n", "r.toml"); }),
            "[config] r.toml:1:1: key steps stands outside any section; did you mean "
            "run.steps?");
}

TEST(LoadRefuses, AWrongTypeSayingBoth) {
  EXPECT_EQ(refused("clip = \"high\"\n"),
            "[config] run.toml:13:8: optimizer.clip: expected a number, found a string "
            "(\"high\")");
  EXPECT_EQ(
      refused("[log]\nevery = 2.5\n"),
      "[config] run.toml:14:9: log.every: expected an integer, found a number with a "
      "fraction or exponent (2.5)");
}

TEST(LoadRefuses, AWrongChoiceWithTheNearestOne) {
  EXPECT_EQ(refused("[schedule]\nkind = \"cosin\"\n"),
            "[config] run.toml:14:8: schedule.kind: \"cosin\" is not one of \"cosine\", "
            "\"linear\", \"constant\", \"wsd\", \"smp\"; did you mean \"cosine\"?");
}

TEST(LoadRefuses, AValueOutsideItsRange) {
  EXPECT_EQ(
      refused("betas = [0.9, 1.0]\n"),
      "[config] run.toml:13:15: optimizer.betas[1] = 1.0: must be at least 0 and less "
      "than 1");
  EXPECT_EQ(refused("", {"optimizer.lr=0"}),
            "[config] --set optimizer.lr=0: optimizer.lr = 0: must be greater than 0");
  EXPECT_EQ(refused("clip = inf\n"),
            "[config] run.toml:13:8: optimizer.clip must be a finite number");
}

/// Expects that each key of a section for a number refuses values that are not finite.
/// Adds the count of these keys to `numbers`.
void refuse_every_number(config::Fields fields, const std::string& prefix, int& numbers) {
  for (config::Field& field : fields) {
    if (field.type.find("number") == std::string::npos && field.type != "integer") {
      continue;
    }
    const std::string name = prefix + "." + field.key;
    for (const double wrong : {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
      config::Value value{wrong, "here"};
      if (field.type == "two numbers") {
        value = {config::Array{{0.5, "here"}, {wrong, "here"}}, "here"};
      } else if (field.type.starts_with("array")) {
        value = {config::Array{{wrong, "here"}}, "here"};
      }
      const std::string message =
          message_of<ConfigError>([&] { field.set(value, name); });
      EXPECT_NE(message.find(name), std::string::npos) << name << ": " << message;
    }
    ++numbers;
  }
}

TEST(LoadRefuses, EveryNumberThatIsNotFiniteByTheNameOfItsKey) {
  int numbers = 0;
  RunConfig c;
  for (auto& section : config::sections_of(c)) {
    refuse_every_number(section.fields, section.name, numbers);
  }
  TrainSource source;
  refuse_every_number(fields_of(source), "data.train[0]", numbers);
  ValidationSource validation;
  refuse_every_number(fields_of(validation), "data.validation[0]", numbers);
  ParameterGroup group;
  refuse_every_number(fields_of(group), "optimizer.groups[0]", numbers);
  ExpectedRate rate;
  refuse_every_number(fields_of(rate), "run.expect", numbers);
  GoldenLosses golden;
  refuse_every_number(fields_of(golden), "run.golden", numbers);
  GoldenLoss loss;
  refuse_every_number(fields_of(loss), "run.golden.losses[0]", numbers);
  EXPECT_GT(numbers, 50);
}

TEST(LoadRefuses, AnOverrideThatIsNotFinite) {
  // JSON has no NaN. It would hold null, which means the default of the model's family.
  EXPECT_EQ(refused("", {"model.override={ rope_theta = nan }"}),
            "[config] --set model.override={ rope_theta = nan }: "
            "model.override.rope_theta must be a finite number");
  EXPECT_NE(refused("", {"model.override={ a = { b = [1.0, -inf] } }"})
                .find("model.override.a.b must be a finite number"),
            std::string::npos);
}

TEST(LoadRefuses, ASetThatIsNotUtf8) {
  EXPECT_NE(refused("", {"run.dir=runs/\xFFx"}).find("not UTF-8 text (byte 5"),
            std::string::npos);
}

TEST(LoadRefuses, MissingRequiredKeysAllAtOnce) {
  const std::string message = message_of<ConfigError>(
      [] { parse_run_config("[run]\nsteps = 3\n[batch]\nmicro_size = 1\n", "r.toml"); });
  EXPECT_TRUE(
      message.starts_with("[config] r.toml:1:2: required and not given: run.dir ("))
      << message;
  for (const char* key : {"model.config (", "data.train (", "data.seq_len (",
                          "batch.global_size (", "optimizer.lr ("}) {
    EXPECT_NE(message.find(key), std::string::npos) << key << " in " << message;
  }
  EXPECT_EQ(message.find("micro_size"), std::string::npos);
}

TEST(LoadRefuses, NeitherStepsNorEpochsOrBoth) {
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000\n"), 13, "");
  EXPECT_EQ(message_of<ConfigError>([&] { parse_run_config(text, "r.toml"); }),
            "[config] r.toml:2:7: required and not given: run.steps (optimizer steps) or "
            "run.epochs (passes over data.train)");
  EXPECT_EQ(
      refused("", {"run.epochs=2"}),
      "[config] --set run.epochs=2: run.steps and run.epochs are both given; keep one "
      "of them");
}

TEST(LoadRefuses, BrokenTomlWithItsPlace) {
  const std::string message = refused("clip = = 1\n");
  EXPECT_TRUE(message.starts_with("[config] run.toml:13:8: not valid TOML: ")) << message;
  EXPECT_TRUE(refused("lr = 2e-3\n").starts_with("[config] run.toml:13:"));  // twice
}

TEST(LoadRefuses, ASetThatIsNoSetting) {
  EXPECT_EQ(refused("", {"steps"}), "[config] --set steps: expected section.key=value");
  EXPECT_EQ(
      refused("", {"steps=3"}),
      "[config] --set steps=3: \"steps\" is not a key; expected section.key=value; did "
      "you mean run.steps?");
  EXPECT_EQ(refused("", {"nothing=3"}),
            "[config] --set nothing=3: \"nothing\" is not a key; expected "
            "section.key=value");
  EXPECT_EQ(
      refused("", {"batch.globl_size=3"}),
      "[config] --set batch.globl_size=3: unknown key batch.globl_size; did you mean "
      "global_size?");
  EXPECT_TRUE(
      refused("", {"optimizer.betas=[0.9"})
          .starts_with("[config] --set optimizer.betas=[0.9: not a TOML value: "));
}

TEST(LoadRefuses, AFileThatIsNotThere) {
  EXPECT_EQ(
      message_of<InputError>([] { load_run_config("/nowhere/run.toml"); }),
      "[config] /nowhere/run.toml: no such file or directory; expected a run's TOML file "
      "(`longhaul recipe list` shows some)");
}

struct NotYet {
  const char* set;
  const char* message;
};

class LoadRefusesUnbuilt : public testing::TestWithParam<NotYet> {};

TEST_P(LoadRefusesUnbuilt, SayingNotAvailableYet) {
  const std::string set = GetParam().set;
  const std::string message = refused("", {set});
  EXPECT_EQ(message, "[config] --set " + set + ": " + GetParam().message);
  EXPECT_NE(message.find("not available yet"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, LoadRefusesUnbuilt,
    testing::Values(NotYet{
        "precision.compute=fp8",
        "precision.compute = \"fp8\" is not available yet in this version; "
        "available: \"fp32\", \"bf16\""}));

TEST(Load, NeutralValuesOfUnbuiltKeysAreAccepted) {
  const LoadedConfig loaded = accepted(R"([parallel]
tp = 1
pp = 1
cp = 1
ep = 1
sequence = true
pipeline = "1f1b"
virtual_stages = 1
zero = 0
shard_group = "world"
[memory]
offload_activations = false
[profile]
steps = []
)");
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_EQ(loaded.config.parallel.zero, 0);
}

}  // namespace
}  // namespace longhaul
