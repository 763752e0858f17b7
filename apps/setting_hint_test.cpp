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
  EXPECT_EQ(program.hint("train --config x.toml"),
            "--config is no option; the run's file stands by itself: longhaul train "
            "x.toml");
  expect_says(program.hint("train --config_file=x.toml"), "longhaul train x.toml");
  expect_says(program.hint("launch -c x.toml"), "longhaul launch x.toml");
  EXPECT_EQ(program.hint("train --config x.yaml"),
            "--config is no option, and run files are TOML: `longhaul import --flags "
            "x.yaml` makes one of a nanotron or axolotl YAML");
  expect_says(program.hint("generate --config x.toml"), "longhaul generate takes none");
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
    // Some names mean something in one section alone.
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
