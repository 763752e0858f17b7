// These tests check what becomes of the settings of programs that fine-tune: axolotl, TRL
// and LLaMA-Factory. Whole files are in tests/fixtures/other_systems.
#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/translate/translate.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::translate {
namespace {

const std::string kAxolotl =
    "base_model: /m\nlearning_rate: 1e-4\nwarmup_steps: 5\nsequence_len: 64\n";
const std::string kTrl = "model_name_or_path: /m\ndataset_name: /d\n";
const std::string kLlamaFactory = "model_name_or_path: /m\ntemplate: llama3\n";

Translation of_file(const std::string& text) {
  const TestDirectory dir;
  write_file(dir / "a.yaml", text);
  return translate((dir / "a.yaml").string(), 1);
}

void expect_refused(const std::string& text, const std::string& words) {
  EXPECT_HAS(message_of<InputError>([&] { of_file(text); }), words);
}

TEST(FineTuning, WhatHasNoFormHereIsRefusedByItsName) {
  const std::string lora = kAxolotl + "adapter: lora\nlora_r: 8\nlora_alpha: 16\n";
  expect_refused(kAxolotl + "adapter: qlora\n", "adapter = qlora: there is lora");
  expect_refused(kAxolotl + "adapter: qlora\nload_in_4bit: true\n",
                 "a.yaml:6:15: load_in_4bit = true: the weights beside an adapter");
  expect_refused(lora + "peft_layers_to_transform: [1, 2]\n", "peft_layers_to_transform");
  expect_refused(lora + "peft_init_lora_weights: pissa\n", "B begins with zeros");
  expect_refused(kAxolotl + "rl: kto\n", "rl kto: [preference] has sigmoid, ipo, ");
  expect_refused(kAxolotl + "rl: grpo\n", "rl grpo: [preference] has sigmoid, ipo, ");
  expect_refused(kAxolotl + "rl: simpo\n", "cpo_alpha (1 where it is not given)");
  expect_refused(kAxolotl + "rl: dpo\nrpo_alpha: 0.5\n", "rpo_alpha = 0.5");

  const std::string dpo = kTrl + "beta: 0.1\n";
  expect_refused(dpo + "loss_type: exo_pair\n", "loss_type exo_pair: [preference] has");
  expect_refused(dpo + "loss_type: [sigmoid, sft]\n", "loss_type: 2 losses");
  expect_refused(dpo + "f_divergence_type: forward_kl\n", "f_divergence_type = forward");
  expect_refused(dpo + "ld_alpha: 0.5\n", "ld_alpha = 0.5");
  expect_refused(dpo + "sync_ref_model: true\n", "sync_ref_model = true");
  expect_refused(kTrl + "packing: true\nloss_type: dft\n", "loss_type dft: the loss");
  expect_refused(kTrl + "packing: true\nload_in_4bit: true\n", "load_in_4bit = true");
  EXPECT_HAS(message_of<InputError>([] { translate("trl grpo --beta 0.1", {}); }),
             "trl grpo: there is training on chats");

  expect_refused(kLlamaFactory + "stage: kto\n", "stage kto: there is training on text");
  expect_refused(kLlamaFactory + "finetuning_type: oft\n", "finetuning_type oft");
  expect_refused(kLlamaFactory + "quantization_bit: 4\n", "quantization_bit = 4");
  const std::string pairs = kLlamaFactory + "stage: dpo\n";
  expect_refused(pairs + "pref_ftx: 0.1\n", "pref_ftx = 0.1");
  expect_refused(pairs + "pref_loss: kto_pair\n", "pref_loss kto_pair: [preference] has");
  expect_refused(pairs + "dpo_label_smoothing: 0.1\n", "smooths \"robust\" and");
  expect_refused(pairs + "ref_model: /r\n", "the reference is what the run begins with");
  expect_refused(kLlamaFactory + "use_badam: true\n", "optimizer.kind is adamw or lamb");
}

TEST(FineTuning, WhatMeansNothingElseIsNotRefused) {
  const std::string dpo = kTrl + "beta: 0.1\nloss_type: [ipo]\n";
  EXPECT_HAS(of_file(dpo + "f_divergence_type: reverse_kl\nld_alpha: 1.0\n"
                           "sync_ref_model: false\nload_in_4bit: false\n")
                 .text,
             "loss = \"ipo\" ");
  EXPECT_HAS(of_file(kTrl + "packing: true\nloss_type: chunked_nll\n").text,
             "pack = \"whole\" ");
  EXPECT_HAS(of_file(kAxolotl + "rl: simpo\ncpo_alpha: 0.0\nrl_beta: 2\n").text,
             "beta = 2.0 ");
}

TEST(FineTuning, ASystemIsKnownByItsNamesOrItsCommand) {
  EXPECT_HAS(of_file(kTrl + "packing: true\n").text, "settings of TRL.");
  EXPECT_HAS(of_file(kLlamaFactory).text, "settings of LLaMA-Factory.");
  expect_refused(kTrl, "may be a file of trl sft or of trl dpo; give the command");
  const TestDirectory dir;
  const std::string file = (dir / "a.yaml").string();
  write_file(file, kTrl);
  EXPECT_HAS(translate("trl dpo --config " + file, 1).text, "lr = 1e-06 ");
  EXPECT_HAS(translate("trl sft --config " + file, 1).text, "lr = 2e-05 ");
  write_file(file, "model_name_or_path: /m\n");
  EXPECT_HAS(translate("llamafactory-cli train " + file, 1).text, "lr = 5e-05 ");
}

TEST(FineTuning, WhatCannotBeKnownIsAskedFor) {
  EXPECT_HAS(of_file(kTrl + "packing: true\nmax_length: null\n").text,
             "seq_len = \"FILL IN: max_length null: tokens of the longest text\"");
  const std::string peft = kTrl + "packing: true\nuse_peft: true\n";
  EXPECT_HAS(
      of_file(peft + "lora_target_modules: '.*(q|v)_proj'\n").text,
      "modules = \"FILL IN: lora_target_modules .*(q|v)_proj: a regular expression");
  EXPECT_HAS(of_file(peft + "lora_target_modules: all-linear\n").text,
             "modules = \"all-linear\" ");
  const std::string lora = of_file(kAxolotl + "adapter: lora\n").text;
  EXPECT_HAS(lora, "rank = \"FILL IN: lora_r is not given\"");
  EXPECT_HAS(lora, "modules = \"FILL IN: lora_target_modules is not given\"");
}

TEST(FineTuning, ALossThatDiffersUnderTheSameNameIsSpokenOf) {
  const std::string pairs = kLlamaFactory + "stage: dpo\npref_loss: ";
  EXPECT_HAS(of_file(pairs + "orpo\n").text, "CAUTION pref_loss = orpo: beside the odds");
  EXPECT_EQ(of_file(pairs + "simpo\n").text.find("CAUTION pref_loss"), std::string::npos);
}

TEST(FineTuning, BothSidesOfAPairStandInOneRow) {
  EXPECT_HAS(of_file(kTrl + "beta: 0.1\nmax_length: 300\n").text,
             "seq_len = 600                   # 2 * max_length: both sides of a pair");
}

}  // namespace
}  // namespace longhaul::translate
