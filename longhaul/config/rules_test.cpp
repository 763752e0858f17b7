#include <fmt/format.h>

#include "longhaul/config/load.h"
#include "tests/support/settings.h"

namespace longhaul {
namespace {

std::vector<std::string> warnings_for(std::vector<std::string> sets) {
  return accepted("", std::move(sets)).warnings;
}

TEST(Rules, RefuseABatchThatDoesNotDivideIntoMicrobatches) {
  EXPECT_EQ(
      refused("", {"batch.micro_size=3"}),
      "[config] --set batch.micro_size=3: batch.global_size = 8 does not divide into "
      "micro batches of batch.micro_size = 3; the nearest batch.global_size: 6 or 9");
}

TEST(Rules, TakeNamesOfVariablesAndNeverAValue) {
  const auto names = accepted("", {R"(run.pass_environment=["HTTPS_PROXY", "MY_*"])"});
  EXPECT_TRUE(names.warnings.empty());
  EXPECT_EQ(names.config.run.pass_environment,
            (std::vector<std::string>{"HTTPS_PROXY", "MY_*"}));
  const std::string told = refused("", {R"(run.pass_environment=["TOKEN=hidden"])"});
  EXPECT_EQ(
      told,
      "[config] --set run.pass_environment: run.pass_environment names \"TOKEN\" and "
      "a value, which belongs into the environment; write names of letters, digits "
      "and _, with * for any text: [\"HTTPS_PROXY\", \"MY_*\"]");
  for (const char* name : {"", "1ST", "A B", "A?", "$A", "-x"}) {
    const std::string text =
        refused("", {fmt::format("run.pass_environment=[\"{}\"]", name)});
    EXPECT_NE(text.find("no variable's name"), std::string::npos) << text;
  }
}

TEST(Rules, LeaveALayoutThatIsStillToBeChosenToParallelAuto) {
  const RunConfig config = accepted("[parallel]\nauto = true\n").config;
  EXPECT_TRUE(config.parallel.undecided());
  EXPECT_EQ(message_of<ConfigError>([&] { derive_batch(config, 8); }),
            "[config] run.toml:14:8: parallel.auto = true and no layout is chosen yet: "
            "longhaul submit and longhaul launch choose one before they start ranks. To "
            "start ranks in another way, write the lines of longhaul plan --search in "
            "place of parallel.auto; a run that has begun has its layout in "
            "runs/a/config.toml");
  // Settings beside it need not be whole, since the choice completes them.
  EXPECT_TRUE(accepted("", {"parallel.auto=true", "parallel.pipeline=interleaved",
                            "parallel.sequence=false"})
                  .warnings.empty());
  for (const char* set : {"parallel.partition=[1, 1]", "memory.recompute_layers=1"}) {
    const std::string told = refused("", {"parallel.auto=true", set});
    EXPECT_NE(told.find("belongs to one layout, and parallel.auto = true chooses "
                        "another; take one of the two out"),
              std::string::npos)
        << told;
  }
}

TEST(Rules, DeriveTheBatchArithmeticFromTheWorld) {
  const DerivedBatch batch = derive_batch(
      accepted("", {"batch.global_size=24", "batch.micro_size=2"}).config, 4);
  EXPECT_EQ(batch.dp, 4);
  EXPECT_EQ(batch.accumulation, 3);
  EXPECT_EQ(batch.sequences_per_replica, 6);
  EXPECT_EQ(batch.tokens_per_step, 24 * 128);
}

TEST(Rules, MaskDocumentsInRowsOfWholeOnesAndRefuseToJoinThem) {
  EXPECT_FALSE(accepted("").config.data.document_mask);
  const auto whole = accepted("", {"data.pack=whole"});
  EXPECT_TRUE(whole.config.data.document_mask);
  EXPECT_TRUE(whole.warnings.empty());
  EXPECT_EQ(whole.config.data.too_long, TooLong::Drop);
  EXPECT_EQ(
      refused("", {"data.pack=whole", "data.document_mask=false"}),
      "[config] --set data.document_mask=false: data.document_mask = false: in rows "
      "of whole documents (data.pack = \"whole\") attention stays inside each "
      "document; leave data.document_mask out");
  EXPECT_EQ(refused("", {"data.train=[{ path = \"a\" }, { synthetic = 3 }]",
                         "data.pack=whole"}),
            "[config] --set data.pack=whole: data.pack = \"whole\": synthetic sequences "
            "hold no documents; leave data.pack out, or train on a token store");
  EXPECT_EQ(warnings_for({"data.too_long=cut"}),
            std::vector<std::string>{
                "--set data.too_long=cut: data.too_long has no effect: data.pack = "
                "\"stream\" leaves no document out for its length"});
}

TEST(Rules, RefuseABatchThatDoesNotDivideOverTheWorldWithAllNumbers) {
  const RunConfig config = accepted("").config;
  EXPECT_EQ(message_of<ConfigError>([&] { derive_batch(config, 3); }),
            "[config] run.toml:10:15: batch.global_size = 8 does not divide by "
            "batch.micro_size 1 * dp 3 = 3 (world 3 = pp 1 * dp 3 * cp 1 * tp 1); the "
            "nearest batch.global_size: 6 or 9");
}

TEST(Rules, NameTheMicroBatchThatKeepsTheStepOnMoreReplicas) {
  const RunConfig config =
      accepted("", {"batch.global_size=24", "batch.micro_size=6"}).config;
  const std::string told = message_of<ConfigError>([&] { derive_batch(config, 8); });
  EXPECT_NE(
      told.find("set batch.micro_size = 3, which trains the same steps; or the nearest "
                "batch.global_size: 48"),
      std::string::npos)
      << told;
  RunConfig set = config;
  set.batch.micro_size = 3;
  EXPECT_EQ(derive_batch(set, 8).tokens_per_step, 24 * config.data.seq_len);
}

TEST(Rules, RefuseAWorldThatDoesNotDivideIntoReplicas) {
  RunConfig config = accepted("").config;
  config.parallel.tp = 4;
  config.parallel.pp = 2;
  EXPECT_EQ(
      message_of<ConfigError>([&] { derive_batch(config, 12); }),
      "[config] run.toml:1:1: 12 ranks do not divide into model replicas of pp 2 * cp "
      "1 * tp 4 = 8 ranks; start a multiple of 8 (longhaul launch -n 8), or change "
      "[parallel]");
}

TEST(Rules, RefuseADelayInAPhaseThatARunDoesNotHave) {
  EXPECT_EQ(refused("[debug]\ndelays = [{ phase = \"gradient\", seconds = 1 }]\n"),
            "[config] run.toml:14:21: debug.delays[0].phase: \"gradient\" is not one of "
            "\"start\", \"load\", \"batch\", \"gradients\", \"update\", \"rollback\", "
            "\"paused\", \"validation\", \"validation batch\", \"sample text\", "
            "\"checkpoint\"; did you mean \"gradients\"?");
  for (const std::string_view phase : kDelayPhases) {
    accepted("", {fmt::format("debug.delays=[{{phase = \"{}\", seconds = 1}}]", phase)});
  }
}

TEST(Rules, RefuseToStopAfterTheEnd) {
  EXPECT_EQ(
      refused("", {"run.stop_after=1001"}),
      "[config] --set run.stop_after=1001: run.stop_after = 1001 is past run.steps = "
      "1000; it can only end a run earlier");
  EXPECT_EQ(last_step(accepted("", {"run.stop_after=700"}).config, 1000), 700);
}

TEST(Rules, TakeAMirrorByItsAddressAloneAndAskNoStore) {
  const RunConfig c = accepted("", {"checkpoint.mirror=\"s3://bucket/runs/a\""}).config;
  EXPECT_EQ(c.checkpoint.mirror, "s3://bucket/runs/a");
  EXPECT_EQ(c.checkpoint.mirror_keep, std::nullopt);
  EXPECT_EQ(warnings_for({"checkpoint.mirror_keep=4"}).back(),
            "--set checkpoint.mirror_keep=4: checkpoint.mirror_keep has no effect: "
            "checkpoint.mirror is not given");
  const auto says = [](const std::string& mirror, const std::string& problem) {
    const std::string text = refused("", {"checkpoint.mirror=\"" + mirror + "\""});
    EXPECT_NE(text.find(problem), std::string::npos) << text;
  };
  says("runs/a", "checkpoint.mirror: runs/a: is no address; write s3://BUCKET/KEY");
  says("s3://bucket", "checkpoint.mirror = \"s3://bucket\" is a whole bucket");
  says("s3://bucket/", "such as s3://bucket/runs/a");
  says("s3://KEY:SECRET@bucket/runs", "an address holds no credentials");
}

TEST(Rules, RefuseAnUnknownDevice) {
  EXPECT_EQ(
      refused("", {"run.device=cuda:1"}),
      "[config] --set run.device=cuda:1: run.device = \"cuda:1\" is not auto, cpu, cuda, "
      "neuron or plugin; a rank takes the device of its place among the ranks of its "
      "machine; "
      "none is named by a number");
}

TEST(Rules, RefuseAPluginDeviceWithoutItsLibrary) {
  EXPECT_EQ(refused("", {"run.device=plugin"}),
            "[config] --set run.device=plugin: run.device = \"plugin\" needs "
            "run.device_plugin, the library that brings the device");
}

TEST(Rules, RefuseAPluginThatIsNotUsed) {
  EXPECT_EQ(refused("", {"run.device_plugin=libx.so", "run.device=cpu"}),
            "[config] --set run.device_plugin=libx.so: run.device_plugin = \"libx.so\" "
            "has no use with run.device = \"cpu\"; leave it out, or set run.device = "
            "\"plugin\"");
}

TEST(Rules, TakeAPluginWithAutoAndByName) {
  for (const char* device : {"run.device=auto", "run.device=plugin"}) {
    const RunConfig config = accepted("", {"run.device_plugin=libx.so", device}).config;
    EXPECT_EQ(config.run.device_plugin, "libx.so");
  }
}

TEST(Rules, RefuseARunInsideItsInputs) {
  EXPECT_EQ(
      refused("", {"run.dir=./models/llama/"}),
      "[config] --set run.dir=./models/llama/: run.dir and model.config are both "
      "./models/llama/; a run writes into its directory, so it needs one of its own");
  EXPECT_EQ(
      refused("", {"init.weights=runs/a"}),
      "[config] --set init.weights=runs/a: init.weights and run.dir are both runs/a; a "
      "run continues its own checkpoints by checkpoint.resume, so leave init.weights "
      "out");
}

TEST(Rules, RefuseAWarmUpAsLongAsTheRun) {
  EXPECT_EQ(refused("", {"schedule.warmup_steps=1000"}),
            "[config] --set schedule.warmup_steps=1000: a warm-up of 1000 steps must be "
            "shorter than the run (1000 steps) and its schedule (1000 steps)");
  EXPECT_EQ(refused("", {"schedule.warmup_steps=5", "schedule.warmup_fraction=0.1"}),
            "[config] --set schedule.warmup_fraction=0.1: schedule.warmup_steps and "
            "schedule.warmup_fraction are both given; keep one of them");
}

TEST(Rules, RefuseScheduleParts) {
  EXPECT_EQ(
      refused("", {"schedule.min_lr=1e-3"}),
      "[config] --set schedule.min_lr=1e-3: schedule.min_lr = 0.001 must be less than "
      "optimizer.lr = 0.001");
  EXPECT_EQ(refused("", {"schedule.warmup_steps=100", "schedule.constant_steps=900"}),
            "[config] --set schedule.constant_steps=900: the warm-up of 100 steps and "
            "schedule.constant_steps = 900 do not fit into the schedule's 1000 steps");
  EXPECT_EQ(
      refused("", {"schedule.kind=wsd", "schedule.warmup_steps=100",
                   "schedule.decay_steps=901"}),
      "[config] --set schedule.decay_steps=901: the warm-up of 100 steps and a decay "
      "of 901 steps do not fit into the schedule's 1000 steps");
  EXPECT_EQ(
      refused("", {"schedule.kind=smp", "schedule.decay=sqrt"}),
      "[config] --set schedule.decay=sqrt: schedule.decay = \"sqrt\" belongs to kind = "
      "\"wsd\"; kind = \"smp\" decays as \"cosine\", \"linear\", \"exponential\", "
      "\"plateau\" or \"constant\"");
}

TEST(Rules, SayWhereTheDecayOfWsdIsADefaultOrNeverBegins) {
  const auto warnings = [](std::vector<std::string> sets) {
    sets.emplace_back("schedule.kind=wsd");
    return accepted("", sets).warnings;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(warnings({"schedule.decay_steps=100"}), Lines{});
  EXPECT_EQ(warnings({}),
            Lines{"--set schedule.kind=wsd: kind = \"wsd\" without schedule.decay_steps "
                  "decays over a tenth of the schedule, which is the last 100 of 1000 "
                  "steps"});
  EXPECT_EQ(
      warnings({"schedule.decay_steps=100", "schedule.horizon=1100"}),
      Lines{"--set schedule.kind=wsd: the decay begins after step 1000, and the run ends "
            "with step 1000: the learning rate never decays; lower schedule.horizon, or "
            "let the rate decay later with continue = \"decay\""});
  EXPECT_EQ(warnings({"schedule.decay_steps=101", "schedule.horizon=1100"}), Lines{});
  // Nobody knows yet which steps of a run with a date are its last tenth.
  EXPECT_EQ(warnings({"run.until=2026-12-24"}),
            Lines{"--set schedule.kind=wsd: kind = \"wsd\" without schedule.decay_steps "
                  "decays over a tenth of the schedule"});
}

TEST(Rules, ADateOrASumEndsARunByADecayThatCanBeginAnywhere) {
  const auto with = [](const std::string& lines, std::vector<std::string> sets) {
    std::string text(kSmallest);
    text.insert(text.find("steps = 1000\n"), lines);
    return parse_run_config(text, "run.toml", sets).config;
  };
  const auto refusal = [&](const std::string& lines, std::vector<std::string> sets) {
    return message_of<ConfigError>([&] { with(lines, std::move(sets)); });
  };
  const std::string until = "until = 2026-12-24T18:00:00+01:00\n";
  const RunConfig dated = with(until, {"schedule.kind=wsd"});
  ASSERT_TRUE(dated.run.until.has_value());
  EXPECT_EQ(dated.run.until->seconds, 1'798'131'600);
  EXPECT_TRUE(dated.run.ends_by_speed());
  EXPECT_FALSE(accepted("").config.run.ends_by_speed());
  EXPECT_EQ(with("until = \"2026-12-24\"\n", {"schedule.kind=wsd"}).run.until->seconds,
            1'798'070'400);
  EXPECT_EQ(refusal(until, {}),
            "[config] run.toml:3:9: run.until needs schedule.kind = \"wsd\", whose decay "
            "can begin at any step; set it, or leave run.until out");
  EXPECT_EQ(
      refusal("budget = 9000\n", {"run.price_per_node_hour=98.32"}),
      "[config] run.toml:3:10: run.budget needs schedule.kind = \"wsd\", whose decay "
      "can begin at any step; set it, or leave run.budget out");
  EXPECT_EQ(
      refusal("budget = 9000\n", {"schedule.kind=wsd"}),
      "[config] run.toml:3:10: run.budget = 9000 needs run.price_per_node_hour, what "
      "a node costs an hour");
  EXPECT_EQ(
      refusal(until, {"schedule.kind=wsd", "schedule.continue=keep"}),
      "[config] --set schedule.continue=keep: schedule.continue = \"keep\" says where "
      "the decay is, so that run.until cannot decide it; leave one of them out");
  EXPECT_EQ(
      refusal(until, {"schedule.kind=wsd", "schedule.horizon=900"}),
      "[config] --set schedule.horizon=900: schedule.horizon = 900 is before the run's "
      "last step 1000, and run.until cannot end a run whose decay is over; leave "
      "schedule.horizon out, or end the run there");
  with(until, {"schedule.kind=wsd", "schedule.horizon=1000"});
  for (const char* wrong : {"until = 5\n", "until = \"noon\"\n", "until = 18:00:00\n",
                            "until = \"2026-02-30\"\n"}) {
    const std::string message = refusal(wrong, {"schedule.kind=wsd"});
    EXPECT_TRUE(message.starts_with("[config] run.toml:3:9: run.until")) << message;
    EXPECT_NE(message.find("2026-12-24T18:00:00+01:00"), std::string::npos) << message;
  }
  refuse_past_end(dated, 1'798'131'599.0);
  EXPECT_EQ(message_of<ConfigError>([&] { refuse_past_end(dated, 1'798'131'600.0); }),
            "[config] run.toml:3:9: run.until = 2026-12-24T17:00:00Z is past, and it is "
            "2026-12-24T17:00:00Z now; set a later date, or leave it out");
}

TEST(Rules, ChooseTheSourceFormsOfTheWarmUp) {
  const auto start = [](std::vector<std::string> sets) {
    sets.emplace_back("schedule.warmup_steps=10");
    return accepted("", sets).config.schedule.warmup_start;
  };
  EXPECT_EQ(start({}), WarmupStart::NonZero);
  EXPECT_EQ(start({"schedule.constant_steps=5"}), WarmupStart::Zero);
  EXPECT_EQ(start({"schedule.kind=linear"}), WarmupStart::Zero);
  EXPECT_EQ(start({"schedule.kind=wsd"}), WarmupStart::NonZero);
  EXPECT_EQ(start({"schedule.kind=linear", "schedule.warmup_start=nonzero"}),
            WarmupStart::NonZero);
}

TEST(Rules, KeepTheFractionalWarmUpOfSmpOnly) {
  ScheduleSection schedule;
  schedule.warmup_fraction = 0.0032;
  EXPECT_EQ(warmup_length(schedule, 47683), 153.0);
  schedule.kind = ScheduleKind::Smp;
  EXPECT_DOUBLE_EQ(warmup_length(schedule, 47683), 152.5856);
}

TEST(Rules, RefuseBadDataLists) {
  EXPECT_EQ(
      refused("", {"data.train=[]"}),
      "[config] --set data.train=[]: data.train is empty; give at least one source");
  EXPECT_EQ(
      refused("", {"data.train=[{ weight = 2 }]"}),
      "[config] --set data.train=[{ weight = 2 }]: data.train[0]: needs either path or "
      "synthetic, not none of them");
  EXPECT_EQ(refused("", {"data.train=[{ path = \"a\", synthetic = 3 }]"}),
            "[config] --set data.train=[{ path = \"a\", synthetic = 3 }]: data.train[0]: "
            "needs either path or synthetic, not both of them");
  EXPECT_EQ(
      refused("", {"data.train=[{ path = [], weight = 1 }]"}),
      "[config] --set data.train=[{ path = [], weight = 1 }]: data.train[0].path is "
      "an empty list; name a path");
  EXPECT_EQ(refused("", {"data.train=[{ path = \"a\", weight = 0 }]"}),
            "[config] --set data.train=[{ path = \"a\", weight = 0 }]: data.train: every "
            "weight "
            "is 0");
  const std::string unused =
      "data.train=[{ path = [\"a\", \"b\"], weight = 0 }, { synthetic = 3 }]";
  EXPECT_EQ(refused("", {unused}),
            "[config] --set " + unused +
                ": data.train[0] (a,b) has weight 0, and no data.changes gives it "
                "another; leave it out");
  const std::string twice =
      "data.validation=[{ name = \"w\", path = \"a\" }, { name = "
      "\"w\", path = \"b\" }]";
  EXPECT_EQ(refused("", {twice}),
            "[config] --set " + twice +
                ": data.validation has two sets named \"w\"; names must differ");
  const std::string tasks =
      "validation.tasks=[{ name = \"t\", path = \"a\" }, { name = \"t\", path = \"b\" "
      "}]";
  EXPECT_EQ(refused("", {tasks}),
            "[config] --set " + tasks +
                ": validation.tasks has two tasks named \"t\"; names must differ");
  const std::string unnamed = "validation.tasks=[{ path = \"a\" }]";
  EXPECT_EQ(
      refused("", {unnamed}),
      "[config] --set " + unnamed + ": validation.tasks[0]: needs both name and path");
}

/// Returns the error message about these changes of the weights of two sources, without
/// the place of the setting.
std::string refused_changes(const std::string& changes) {
  const std::string message =
      refused("", {"data.train=[{ path = \"a\" }, { path = \"b\", weight = 0 }]",
                   "data.changes=" + changes});
  const std::string place = "[config] --set data.changes=" + changes + ": ";
  return message.starts_with(place) ? message.substr(place.size()) : message;
}

TEST(Rules, RefuseChangesOfWeightsThatDoNotFit) {
  EXPECT_EQ(
      refused_changes("[{ step = 9, weights = [1] }]"),
      "data.changes: step 9 has 1 weights, but data.train has 2 sources; give one weight "
      "for each source, and 0 for a source that is not used from there on");
  EXPECT_EQ(refused_changes("[{ step = 9, weights = [1, 2] }, { step = 9, weights = [2, "
                            "1] }]"),
            "data.changes: step 9 comes after step 9; list the steps in ascending order, "
            "each once");
  EXPECT_EQ(refused_changes("[{ step = 9, weights = [0, 0] }]"),
            "data.changes: from step 9 on every weight is 0");
  EXPECT_EQ(refused_changes("[{ step = 9 }]"),
            "data.changes[0]: needs both step and weights");
  EXPECT_EQ(refused_changes("[{ step = 1, weights = [1, 1] }]"),
            "data.changes[0].step = 1: must be from 2 to 1000000000000");
  EXPECT_TRUE(warnings_for({"data.train=[{ path = \"a\" }, { path = \"b\", weight = 0 }]",
                            "data.changes=[{ step = 9, weights = [0.5, 0.5] }]"})
                  .empty());
}

TEST(Rules, GiveLambTheDefaultsOfItsSourceAndKeepWhatIsGiven) {
  const RunConfig config = accepted("", {"optimizer.kind=lamb"}).config;
  EXPECT_EQ(config.optimizer.betas, (std::array{0.9, 0.999}));
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(config.optimizer.weight_decay, 0.01);
  const RunConfig own = accepted("", {"optimizer.kind=lamb", "optimizer.eps=1e-8",
                                      "optimizer.betas=[0.9, 0.95]"})
                            .config;
  EXPECT_EQ(own.optimizer.betas, (std::array{0.9, 0.95}));
  EXPECT_EQ(own.optimizer.eps, 1e-8);
  const RunConfig again = parse_run_config(to_toml(own), "saved").config;
  EXPECT_TRUE(diff_configs(own, again).empty());
  EXPECT_EQ(accepted("").config.optimizer.betas, (std::array{0.9, 0.95}));
}

TEST(Rules, RefuseBf16MastersOfOtherWeights) {
  EXPECT_EQ(refused("", {"precision.master=bf16_sr", "precision.compute=fp32"}),
            "[config] --set precision.master=bf16_sr: precision.master = \"bf16_sr\" "
            "keeps one copy of the weights, in bf16; it needs precision.compute = "
            "\"bf16\"");
  EXPECT_TRUE(warnings_for({"precision.master=bf16_sr"}).empty());
}

TEST(Rules, RefuseSettingsThatLambHasNoUseFor) {
  EXPECT_EQ(refused("", {"optimizer.kind=lamb", "optimizer.convention=hf"}),
            "[config] --set optimizer.convention=hf: optimizer.convention = \"hf\" "
            "belongs to kind = \"adamw\": lamb has one form; leave it out");
  EXPECT_EQ(refused("", {"optimizer.kind=lamb", "optimizer.weight_decay=0"}),
            "[config] --set optimizer.weight_decay=0: optimizer.weight_decay = 0 leaves "
            "no parameter a trust ratio, and kind = \"lamb\" would be Adam; give it a "
            "decay, or take kind = \"adamw\"");
  accepted("", {"optimizer.kind=lamb", "optimizer.weight_decay=0",
                "optimizer.groups=[{ match = \"embed\", weight_decay = 0.1 }]"});
}

TEST(Rules, RefuseAResumeWordThatIsMisspelt) {
  EXPECT_EQ(
      refused("", {"checkpoint.resume=lastest"}),
      "[config] --set checkpoint.resume=lastest: checkpoint.resume: \"lastest\" is not "
      "\"latest\", \"never\", a step number or a path; write a path with a slash, as "
      "\"./lastest\"");
}

TEST(Rules, WarnOfSettingsWithoutEffect) {
  EXPECT_EQ(warnings_for({"schedule.plateau_fraction=0.1"}),
            std::vector<std::string>{
                "--set schedule.plateau_fraction=0.1: schedule.plateau_fraction has no "
                "effect: it belongs to kind = \"smp\" with decay = \"plateau\""});
  EXPECT_EQ(
      warnings_for({"validation.batches=3"}),
      std::vector<std::string>{"--set validation.batches=3: validation.batches has no "
                               "effect: data.validation is empty"});
  EXPECT_EQ(
      warnings_for({"parallel.sequence=false"}),
      std::vector<std::string>{"--set parallel.sequence=false: parallel.sequence has "
                               "no effect: parallel.tp is 1"});
  EXPECT_EQ(
      warnings_for({"init.certificate=false"}),
      std::vector<std::string>{"--set init.certificate=false: init.certificate has no "
                               "effect: init.weights is not given"});
  EXPECT_EQ(warnings_for({"experts.balance=off", "experts.balance_weight=0.02"}),
            std::vector<std::string>{
                "--set experts.balance_weight=0.02: experts.balance_weight has no "
                "effect: experts.balance is \"off\""});
  EXPECT_TRUE(warnings_for({"experts.balance_weight=0.02"}).empty());
  EXPECT_EQ(warnings_for({"schedule.decay_steps=5", "schedule.kind=constant",
                          "schedule.min_lr=1e-5"})
                .size(),
            2U);
  EXPECT_TRUE(warnings_for({"validation.batches=10"}).empty());
  EXPECT_TRUE(warnings_for({"validation.every=3",
                            "validation.tasks=[{ name = \"t\", path = \"a\" }]"})
                  .empty());
}

TEST(Rules, TurnEpochsIntoWholeSteps) {
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000"), 12, "epochs = 2.5");
  const RunConfig config = parse_run_config(text, "run.toml").config;
  EXPECT_EQ(total_steps(config, 100), 31);  // 250 sequences, 8 a step
  EXPECT_EQ(
      message_of<ConfigError>([&] { total_steps(config, 3); }),
      "[config] run.toml:3:10: run.epochs = 2.5 over 3 sequences is less than one step "
      "of batch.global_size = 8 sequences");
  EXPECT_EQ(total_steps(accepted("").config, 3), 1000);
}

TEST(Rules, EndARunOfEpochsWhereItsDataEndsWhateverTheBatchWasBefore) {
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000"), 12, "epochs = 3");
  const auto total = [&](int64_t batch, int64_t per_epoch, const DataSoFar& past) {
    const std::string set = fmt::format("batch.global_size={}", batch);
    return total_steps(
        parse_run_config(text, "run.toml", {{set, "batch.micro_size=1"}}).config,
        per_epoch, past);
  };
  EXPECT_EQ(total(8, 49, {}), 18);  // 147 sequences
  // After eight steps of 8 sequences the batch is 6 sequences, and after four of those
  // steps it is 8 again.
  EXPECT_EQ(total(6, 49, {8, 64.0}), 8 + 13);
  EXPECT_EQ(total(8, 49, {12, 88.0}), 12 + 7);
  // Without a change of settings the number of steps is the same at each start of the
  // run.
  for (int64_t step = 0; step <= 18; ++step) {
    EXPECT_EQ(total(8, 49, {step, 8.0 * static_cast<double>(step)}), 18) << step;
  }
  // At another sequence length an epoch has 100 sequences. 2.2 epochs are done, and 0.8
  // are left.
  EXPECT_EQ(total(8, 100, {14, 220.0}), 14 + 10);
  // All epochs are done, or more than all, since the number of epochs was lowered.
  EXPECT_EQ(total(8, 49, {18, 144.0}), 18);
  EXPECT_EQ(total(8, 20, {18, 144.0}), 18);
}

TEST(Rules, RefuseEpochsOfMoreStepsThanCanBeCounted) {
  for (const char* epochs : {"1e17", "1e300", "1e14"}) {
    std::string text(kSmallest);
    text.replace(text.find("steps = 1000"), 12, std::string("epochs = ") + epochs);
    const RunConfig config = parse_run_config(text, "run.toml").config;
    const std::string message =
        message_of<ConfigError>([&] { total_steps(config, 100'000); });
    EXPECT_TRUE(message.starts_with("[config] run.toml:3:10: run.epochs = ")) << message;
    EXPECT_NE(message.find(" over 100000 sequences are "), std::string::npos) << message;
    EXPECT_NE(message.find("a run has at most 1000000000000"), std::string::npos);
  }
}

TEST(Rules, RefuseSizesWhoseProductsCannotBeCounted) {
  EXPECT_EQ(
      refused("", {"data.seq_len=1000000000", "batch.global_size=1000", "run.steps=1"}),
      "[config] --set batch.global_size=1000: batch.global_size = 1000 sequences "
      "of data.seq_len = 1000000000 are 1000000000000 tokens; a step has at most "
      "10000000000");
  EXPECT_EQ(refused("", {"data.seq_len=1000000000", "batch.micro_size=4"}),
            "[config] --set batch.micro_size=4: batch.micro_size = 4 sequences of "
            "data.seq_len = 1000000000 are 4000000000 tokens; a forward pass has at most "
            "2147483647");
  const std::string steps =
      refused("", {"run.steps=1000000000000", "batch.global_size=10000000"});
  EXPECT_TRUE(
      steps.starts_with("[config] --set run.steps=1000000000000: run.steps: "
                        "1000000000000 steps of batch.global_size = 10000000 "))
      << steps;
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000"), 12, "epochs = 1e9");
  const RunConfig config =
      parse_run_config(text, "run.toml", {{"batch.global_size=1000000"}}).config;
  EXPECT_EQ(total_steps(config, 1'000'000), 1'000'000'000);
  const std::string epochs =
      message_of<ConfigError>([&] { total_steps(config, 100'000'000); });
  EXPECT_NE(epochs.find("run.epochs: 100000000000 steps of batch.global_size = 1000000"),
            std::string::npos)
      << epochs;
}

TEST(Rules, RefuseWeightsThatAddUpToMoreThanANumberHolds) {
  const std::string huge =
      refused("", {"data.train=[{path=\"a\",weight=1e308},{path=\"b\",weight=1e308}]"});
  EXPECT_NE(
      huge.find("data.train[0].weight = 1e+308: must be from 0 to 1000000000000000"),
      std::string::npos)
      << huge;
}

TEST(Rules, RefuseAFieldOfSyntheticSequences) {
  const std::string message =
      refused("", {"data.train=[{synthetic=10,field=\"tokens\"}]"});
  EXPECT_NE(message.find("data.train[0].field = \"tokens\": synthetic sequences are made "
                         "of no records; leave field out"),
            std::string::npos)
      << message;
}

TEST(Rules, CheckTheWarmUpOnceEpochsAreSteps) {
  std::string text(kSmallest);
  text.replace(text.find("steps = 1000"), 12, "epochs = 1.0");
  const std::vector<std::string> sets{"schedule.warmup_steps=20"};
  const RunConfig config = parse_run_config(text, "run.toml", sets).config;
  EXPECT_EQ(total_steps(config, 168), 21);
  EXPECT_EQ(
      message_of<ConfigError>([&] { total_steps(config, 167); }),
      "[config] --set schedule.warmup_steps=20: a warm-up of 20 steps must be shorter "
      "than the run (20 steps) and its schedule (20 steps)");
}

TEST(Rules, MatchParametersByPatternOrPart) {
  EXPECT_TRUE(matches_parameter("embed", "model.embed_tokens.weight"));
  EXPECT_FALSE(matches_parameter("*embed", "model.embed_tokens.weight"));
  EXPECT_TRUE(matches_parameter("*norm*", "model.norm.weight"));
  EXPECT_FALSE(matches_parameter("*LayerNorm*", "model.norm.weight"));
}

}  // namespace
}  // namespace longhaul
