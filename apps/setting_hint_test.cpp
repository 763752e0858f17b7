#include "apps/setting_hint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "longhaul/base/text.h"
#include "tests/support/other_trainers.h"

namespace longhaul::apps {
namespace {

/// A program with a verb that takes settings, one that does not, and one below another.
class Program {
 public:
  Program() {
    CLI::App* train = app_.add_subcommand("train");
    train->add_option("config", text_);
    train->add_option("--set", list_);
    CLI::App* doctor = app_.add_subcommand("doctor");
    doctor->add_option("config", text_);
    doctor->add_option("--set", list_);
    doctor->add_option("--dir", list_);
    doctor->add_flag("--quick", flag_);
    CLI::App* launch = app_.add_subcommand("launch");
    launch->add_option("config", text_);
    launch->add_option("--set", list_);
    launch->add_option("-n,--ranks", number_);
    launch->add_option("--ranks-per-node", number_);
    launch->add_option("--hosts", text_);
    CLI::App* generate = app_.add_subcommand("generate");
    generate->add_option("model", text_);
    generate->add_option("--prompt", text_);
    generate->add_option("--max-new-tokens", number_);
    generate->add_option("--temperature", number_);
    CLI::App* submit = app_.add_subcommand("submit");
    submit->add_option("config", list_);
    submit->add_option("--set", list_);
    submit->add_option("--partition", text_);
    submit->add_option("--nodes", number_);
    submit->add_option("--ranks-per-node", number_);
    CLI::App* verify = app_.add_subcommand("verify");
    verify->add_option("dir", text_);
    CLI::App* fresh = app_.add_subcommand("new");
    fresh->add_option("model", text_);
    fresh->add_option("data", list_);
    CLI::App* report = app_.add_subcommand("report");
    report->add_option("run", text_);
    report->add_option("--against", text_);
    report->add_flag("--json", flag_);
    CLI::App* build = app_.add_subcommand("data")->add_subcommand("build");
    build->add_option("inputs", list_);
    build->add_option("--out", text_);
    build->add_option("--threads", number_);
    build->add_option("--seq-len", number_);
    build->add_option("--field", text_);
  }

  std::string hint(const std::string& words) const {
    const std::vector<std::string> list = split_words(words);
    return setting_hint(app_, list).value_or("");
  }

 private:
  CLI::App app_{"", "longhaul"};
  std::string text_;
  std::vector<std::string> list_;
  int64_t number_ = 0;
  bool flag_ = false;
};

void expect_says(const std::string& message, const std::string& words) {
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(SettingHint, AFlagForASettingNamesTheSetThatDoesIt) {
  const Program program;
  const auto train = [&](const std::string& words) {
    return program.hint("train run.toml " + words);
  };
  EXPECT_EQ(train("--steps 5"),
            "--steps is no option; settings are given with --set, here --set "
            "run.steps=5");
  expect_says(train("--lr=1e-4"), "here --set optimizer.lr=1e-4");
  expect_says(train("--optimizer.lr 1e-4"), "here --set optimizer.lr=1e-4");
  expect_says(train("--sed 1"), "here --set run.seed=1");
  expect_says(train("--training.steps 5"), "here --set run.steps=5");
  expect_says(train("--train_module.optim.lr=1e-4"), "here --set optimizer.lr=1e-4");
  expect_says(train("--data_loader.global_batch_size 4e6"), "sequences, not tokens");
  expect_says(train("--set run.steps=5 --leraning_rate 1"), "--set optimizer.lr=1");
  EXPECT_EQ(train("--gradient_accumulation_steps 4"),
            "--gradient_accumulation_steps is no option; here batch.global_size says it: "
            "the accumulation follows: batch.global_size / (batch.micro_size x "
            "data-parallel ranks); settings are given as --set batch.global_size=VALUE");
  EXPECT_EQ(train("--fp16"),
            "--fp16 is no option; other trainers have it, and no key takes its place: "
            "there is no fp16: a run computes in bf16, the default, or in fp32 "
            "(precision.compute)");
  EXPECT_EQ(train("--foo"),
            "--foo is no option; settings are given as --set section.key=value, and "
            "`longhaul config` lists them all");
  EXPECT_EQ(train("--set run.steps 5"), "--set takes one word: --set run.steps=5");
  EXPECT_EQ(train("--set run.steps=5"), "");
  EXPECT_EQ(train("--set run.steps=5 optimizer.lr=1e-4"),
            "optimizer.lr=1e-4 is no option; each setting has a --set of its own: --set "
            "optimizer.lr=1e-4");
  expect_says(train("--dry-run"), "longhaul config RUN --ranks N checks a run");
}

TEST(SettingHint, ARunFileStandsByItself) {
  const Program program;
  EXPECT_EQ(
      program.hint("train --config x.toml"),
      "--config is no option; the run's file is given without an option: longhaul train "
      "x.toml");
  expect_says(program.hint("train --config_file=x.toml"), "longhaul train x.toml");
  expect_says(program.hint("launch -c x.toml"), "longhaul launch x.toml");
  EXPECT_EQ(program.hint("train --config x.yaml"),
            "--config is no option, and run files are TOML: `longhaul import --flags "
            "x.yaml` makes one of a YAML of nanotron, axolotl, TRL or LLaMA-Factory");
  expect_says(program.hint("generate --config x.toml"), "longhaul generate takes none");
}

TEST(SettingHint, WhatAPositionalArgumentNamesStandsByItself) {
  const Program program;
  EXPECT_EQ(
      program.hint("generate --model hf --prompt a"),
      "--model is no option of longhaul generate; its value is given without an option: "
      "longhaul generate hf");
  expect_says(program.hint("data build --input a.jsonl"), "longhaul data build a.jsonl");
  expect_says(program.hint("verify --checkpoint runs/a"), "longhaul verify runs/a");
  expect_says(program.hint("report --run runs/a"), "longhaul report runs/a");
  expect_says(program.hint("new --model hf --data d"), "longhaul new hf DATA");
}

TEST(SettingHint, AVerbSaysWhatItHasInPlaceOfOthersOptions) {
  const Program program;
  const auto says = [&](const std::string& words, const std::string& answer) {
    const std::string message = program.hint(words);
    expect_says(message, answer);
    EXPECT_EQ(message.find("--set "), std::string::npos) << message;
  };
  says("generate m --top_k 5", "--temperature and --top-p say how tokens are chosen");
  says("generate m --num_beams 5", "it writes one text, token by token");
  says("data build a.txt --append-eod", "by default EOS stands behind the text");
  says("verify runs/a --checkpoint 4", "as RUN/checkpoints/step_00000500");
  says("report runs/a --compare runs/b", "did you mean --against?");
  says("report runs/a --format json", "did you mean --json?");
  says("submit run.toml --output x.log", "behind --slurm=");
  says("submit run.toml --account lab", "--slurm=--account=lab");
  says("submit run.toml --gpus-per-node 8", "--slurm=--gpus-per-node=8 asks Slurm");
  says("submit run.toml -N 2", "did you mean --nodes?");
  says("submit run.toml -p gpu", "did you mean --partition?");
  says("launch run.toml --nnodes 2", "--hosts n1,n2 names other machines");
  says("launch run.toml --master_addr a", "it starts the ranks and joins them by itself");
  EXPECT_EQ(program.hint("launch run.toml -np 2"),
            "-np is no option of longhaul launch; did you mean -n 2?");
  EXPECT_EQ(program.hint("launch -n 2 longhaul train run.toml"),
            "launch starts longhaul train by itself: longhaul launch run.toml");
  expect_says(program.hint("new m d --lr 1"), "change it in the file that it writes");
  expect_says(program.hint("doctor --frobnicate"), "options of longhaul doctor: --dir, ");
}

TEST(SettingHint, ASettingWithoutSetIsToldOfSet) {
  const Program program;
  const auto train = [&](const std::string& words) {
    return program.hint("train run.toml " + words);
  };
  EXPECT_EQ(train("trainer.max_steps=10"),
            "trainer.max_steps is no option; settings are given with --set, here --set "
            "run.steps=10");
  EXPECT_EQ(train("++run.steps=10"),
            "++run.steps=10 is no option; each setting has a --set of its own: --set "
            "run.steps=10");
  EXPECT_EQ(train("optimizer.lr 1e-4"),
            "optimizer.lr is no option; each setting has a --set of its own: --set "
            "optimizer.lr=1e-4");
  EXPECT_EQ(train("frob=1"), "");
  EXPECT_EQ(program.hint("data --tokenizer t tokenize a.txt"), "");
}

TEST(SettingHint, AVerbIsToldItsOwnOptions) {
  const Program program;
  EXPECT_EQ(program.hint("doctor --quik"),
            "--quik is no option of longhaul doctor; did you mean --quick?");
  EXPECT_EQ(program.hint("doctor --quick --qiuck"),
            "--qiuck is no option of longhaul doctor; did you mean --quick?");
  EXPECT_EQ(program.hint("data build a.txt --seq_len 8"),
            "--seq_len is no option of longhaul data build; did you mean --seq-len?");
  expect_says(program.hint("data build a.txt --output_dir o"), "did you mean --out?");
  expect_says(program.hint("data build a.txt --num_workers 8"),
              "did you mean --threads?");
  expect_says(program.hint("data build a.txt --text_column t"), "did you mean --field?");
  expect_says(program.hint("generate m --max_tokens 8"),
              "did you mean --max-new-tokens?");
  expect_says(program.hint("launch run.toml --nproc_per_node 8"),
              "did you mean --ranks or --ranks-per-node?");
  EXPECT_EQ(program.hint("launch run.toml -n8"), "");
}

TEST(SettingHint, RanksComeFromTheLauncher) {
  const Program program;
  for (const char* flag : {"--gpus 8", "--nproc_per_node 8", "-np 8", "--nnodes=2"}) {
    const std::string message = program.hint(fmt::format("doctor {}", flag));
    expect_says(message, "srun or mpirun says how many ranks there are");
    EXPECT_EQ(message.find("--set"), std::string::npos) << message;
  }
}

TEST(SettingHint, AVerbWithoutSettingsIsNeverToldToUseSet) {
  const Program program;
  EXPECT_EQ(program.hint("generate m --set run.steps=5"),
            "--set goes with a run's TOML file, and longhaul generate takes none; see "
            "longhaul generate --help");
  EXPECT_EQ(program.hint("generate m --lr 1"),
            "--lr is no option: optimizer.lr is a setting of a run, and longhaul "
            "generate takes none");
  EXPECT_EQ(program.hint("generate m --frobnicate"),
            "--frobnicate is no option of longhaul generate; its options: --prompt, "
            "--max-new-tokens, --temperature; see longhaul generate --help");
  for (const NameOfOthers& entry : kNamesOfOthers) {
    for (const std::string& name : split_words(entry.names)) {
      const std::string message = program.hint("generate m --" + name + " 1");
      EXPECT_EQ(message.find("--set "), std::string::npos) << message;
    }
  }
}

TEST(SettingHint, NoFlagOfAnotherTrainerLeadsToAKeyOfAnotherMeaning) {
  const Program program;
  static const std::regex kSet("--set '?([a-z_.]+)=");
  for (const NameOfOthers& entry : kNamesOfOthers) {
    // These names have a meaning in one section only, so as an option they lead to no
    // key.
    if (entry.names == "interval" || entry.names == "split") continue;
    const std::vector<std::string> wanted = split_words(entry.keys);
    for (const std::string& name : split_words(entry.names)) {
      const std::string message = program.hint("train run.toml --" + name + " 1");
      SCOPED_TRACE(message);
      int sets = 0;
      for (auto i = std::sregex_iterator(message.begin(), message.end(), kSet);
           i != std::sregex_iterator(); ++i, ++sets) {
        EXPECT_NE(std::ranges::find(wanted, (*i)[1].str()), wanted.end());
      }
      EXPECT_EQ(sets > 0, entry.kind != 'n');
      const bool carries = message.find("=1") != std::string::npos ||
                           message.find("=\"1\"") != std::string::npos;
      EXPECT_EQ(carries, entry.kind == 's');
      EXPECT_NE(message.find(entry.why), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longhaul::apps
