#include "longhaul/translate/translate.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/load.h"
#include "longhaul/dictionary/words.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::translate {
namespace {

const std::string kNxd =
    "torchrun --nproc_per_node 8 run_llama_nxd.py --training_dir /d --training_config /c "
    "--lr "
    "1e-4 --warmup_steps 5 --min_lr 0 --constant_steps 0 --tensor_parallel_size 4 ";

std::string refusal(const std::string& given) {
  return message_of<InputError>([&] { translate(given, {}); });
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Translate, EachLineSaysWhereItIsFrom) {
  const std::string text =
      translate(kNxd + "--train_batch_size 64 --num_microbatches 16", {}).text;
  EXPECT_TRUE(holds(text, "lr = 0.0001                     # --lr\n")) << text;
  EXPECT_TRUE(holds(text,
                    "micro_size = 4                  # --train_batch_size 64 / "
                    "--num_microbatches 16\n"))
      << text;
  EXPECT_TRUE(
      holds(text,
            "global_size = 128               # --train_batch_size 64 * 2 replicas "
            "(8 ranks / (tp 4 * pp 1 * cp 1))\n"))
      << text;
  EXPECT_TRUE(holds(text, "# their default\n"));
}

TEST(Translate, WhatHasNoKeyIsNamedWithTheReason) {
  const Translation made = translate(kNxd + "--save_load_xser 1 --tb_dir $X", {});
  EXPECT_TRUE(holds(made.text, "#   --save_load_xser 1: checkpoints are safetensors\n"));
  EXPECT_TRUE(holds(made.text, "#   --tb_dir $X: event files lie in run.dir"));
  EXPECT_EQ(made.without_key, 2);
}

TEST(Translate, PlacesAndFormsOfRecordsAreCarriedOver) {
  const Translation made = translate(kNxd + "--tb_dir out/tb --metrics_file r.json", {});
  const RunConfig config = parse_run_config(made.text, "run.toml").config;
  EXPECT_EQ(config.log.tensorboard_dir, "out/tb");
  EXPECT_EQ(config.log.results, ResultsForm::Nxd);
  EXPECT_TRUE(holds(made.text, "# --metrics_file r.json: results.json in run.dir"));
  EXPECT_EQ(made.without_key, 0);
}

TEST(Translate, TheFirstOfSeveralTensorBoardDirectoriesIsTaken) {
  const Translation made =
      translate("torchrun train_external.py --tensorboard_dir /a /b", {});
  EXPECT_TRUE(holds(made.text, "tensorboard_dir = \"/a\""));
  EXPECT_TRUE(holds(made.text,
                    "#   --tensorboard_dir /a /b: event files lie in the "
                    "first directory alone\n"));
}

TEST(Translate, AnUnknownFlagIsNamedLoudly) {
  const Translation made = translate(kNxd + "--tensor_paralel_size 8 --zzz", {});
  ASSERT_EQ(made.unknown.size(), 2U);
  EXPECT_EQ(made.unknown[0],
            "--tensor_paralel_size 8 (did you mean tensor_parallel_size?)");
  EXPECT_EQ(made.unknown[1], "--zzz");
  EXPECT_TRUE(
      holds(made.text, "# UNKNOWN to longhaul, and so left out:\n#   --tensor_paralel"));
}

TEST(Translate, WeightsThatAFlagNamesAreNeverLeftOut) {
  const auto weights = [](const std::string& flags) {
    const std::string text = translate(kNxd + flags, {}).text;
    const size_t place = text.find("[init]\nweights = ");
    return place == std::string::npos
               ? std::string()
               : text.substr(place + 17, text.find('\n', place + 17) - place - 17);
  };
  EXPECT_TRUE(holds(weights("--pretrained_weight_dir /w"),
                    "FILL IN: a Hugging Face directory of the weights; the shards in /w "
                    "(--pretrained_weight_dir)"));
  for (const char* flag : {"--init_weights /w", "--load-dir /w", "--pretrained /w",
                           "--finetune_from /w", "--ckpt_path /w"}) {
    EXPECT_TRUE(holds(weights(flag), std::string("FILL IN: ") + flag + " is not known"))
        << flag << ": " << weights(flag);
  }
  for (const char* flag : {"--pretrained 0", "--weight_decay_rate 1", "--download_dir x",
                           "--checkpoint_layers 2", "--lrr 1"}) {
    EXPECT_EQ(weights(flag), "") << flag;
  }
}

TEST(Translate, NoRuleIsJudgedInWhichAStandInTakesPart) {
  // The warm-up is not known. A provisional warm-up would be longer than the run, but no
  // rule may refuse the file for that.
  const Translation made = translate(
      "python train_external.py --max_steps 100 --lr_decay_iters 1000 --warmup $W "
      "--train_batch_size 4 --training_dir /d",
      8);
  EXPECT_EQ(made.refused, "");
  EXPECT_TRUE(holds(made.text, "warmup_fraction = \"FILL IN: --warmup $W"));
  // A rule in which only known values take part is still judged.
  const Translation wrong = translate(
      "python train_external.py --max_steps 100 --lr_decay_iters 1000 --warmup $W "
      "--train_batch_size 4 --training_dir /d --lr 1e-6",
      8);
  EXPECT_TRUE(holds(wrong.refused, "schedule.min_lr = 1e-05 must be less than"))
      << wrong.refused;
}

TEST(Translate, EqualUnknownNumbersMakeMicroBatchesOfOne) {
  const std::string script =
      "N=$(count)\nM=$N\n" + kNxd + "--train_batch_size $N --num_microbatches ";
  EXPECT_TRUE(holds(translate(script + "$M", {}).text,
                    "micro_size = 1                  # --train_batch_size and "
                    "--num_microbatches are the same number"));
  EXPECT_TRUE(holds(translate(script + "$Q", {}).text, "micro_size = \"FILL IN"));
}

TEST(Translate, AScriptsMachinesFollowFromTheRanks) {
  const TestDirectory dir;
  const std::string script = (dir / "run.sh").string();
  write_text_atomic(
      script,
      "N=1\nARGS='--nproc_per_node 4'\nif [ -v SLURM_NTASKS ]; then\n"
      "N=$SLURM_NTASKS\nARGS=\"--nproc_per_node 4 --nnodes $N\"\nfi\n"
      "torchrun $ARGS tp_zero1_llama_hf_pretrain.py --lr 1e-4 --batch_size 1 "
      "--max_steps ${STEPS:-9} --tensor_parallel_size 2 --grad_accum_usteps "
      "$((64 / (4 * N / 2)))\n");
  const std::string many = translate(script, 16).text;
  EXPECT_TRUE(holds(many,
                    "global_size = 64                # batch_size 1 * "
                    "grad_accum_usteps 8 = 8 * 8 replicas"))
      << many;
  EXPECT_TRUE(holds(many,
                    "steps = 9                       # --max_steps; STEPS counts as "
                    "unset\n"));
  EXPECT_TRUE(holds(many, "# NOTE: STEPS: the script never sets it"));
  EXPECT_TRUE(holds(translate(script, {}).text,
                    "N is $SLURM_NTASKS where [ -v SLURM_NTASKS ], 1 otherwise"));
}

TEST(Translate, ASecretInAnAddressIsRefusedAndNotRepeated) {
  const TestDirectory dir;
  const auto expect_refusal = [](const std::string& given, const std::string& where) {
    const std::string said = refusal(given);
    EXPECT_TRUE(holds(said, where + ": s3://...@corpus/x: an address holds no")) << said;
    EXPECT_FALSE(holds(said, "SECRETX")) << said;
  };
  const std::string address = "s3://AKIA:SECRETX@corpus/x";
  expect_refusal(kNxd + "--data_dir " + address, "--flags:1");
  expect_refusal(kNxd + "--data_dir=" + address, "--flags:1");
  const std::string yaml = (dir / "axolotl.yaml").string();
  write_text_atomic(yaml, "base_model: m\ndatasets:\n  - path: " + address + "\n");
  expect_refusal(yaml, yaml + ":3");
  const std::string script = (dir / "train.sh").string();
  write_text_atomic(script, kNxd + "\\\n  --unknown '" + address + "'\n");
  expect_refusal(script, script + ":2");
}

TEST(Translate, AFileWithSomethingToFillInIsRefusedByAStartWithItsLine) {
  const Translation made = translate(kNxd + "--max_steps $STEPS", {});
  EXPECT_EQ(made.to_fill, std::vector<std::string>{"run.steps"});
  EXPECT_TRUE(made.refused.empty()) << made.refused;
  const std::string message =
      message_of<ConfigError>([&] { parse_run_config(made.text, "run.toml"); });
  EXPECT_TRUE(holds(message, "run.toml:6:9: run.steps: expected an integer")) << message;
  EXPECT_TRUE(holds(message, "FILL IN: --max_steps $STEPS")) << message;
}

TEST(Translate, WhatTrainWouldRefuseIsSaid) {
  const Translation made = translate(kNxd + "--seq_len 4097", {});
  EXPECT_TRUE(holds(made.refused, "parallel.sequence")) << made.refused;
  // 6 ranks with tp 4 make no whole number of replicas.
  EXPECT_TRUE(holds(refusal("torchrun --nproc_per_node 6 run_llama_nxd.py --lr 1 "
                            "--tensor_parallel_size 4 --warmup_steps 1"),
                    "6 ranks (torchrun) do not divide into model replicas"));
}

TEST(Translate, WhatHasNoDefaultThereIsAskedFor) {
  const std::string text =
      translate("torchrun --nproc_per_node 8 run_llama_nxd.py --training_dir /d", {})
          .text;
  EXPECT_TRUE(holds(text, "lr = \"FILL IN: none of the given settings says it\""))
      << text;
  EXPECT_TRUE(
      holds(text, "warmup_steps = \"FILL IN: --warmup_steps, for which their script"));
  EXPECT_TRUE(holds(text, "min_lr = \"FILL IN: --min_lr, for which their script"));
}

TEST(Translate, TheRanksThatAreSaidBeatThoseOfTheCommandLine) {
  EXPECT_TRUE(holds(translate(kNxd, 32).text, "global_size = 128 "));
  EXPECT_TRUE(holds(translate(kNxd, {}).text, "global_size = 32 "));
}

TEST(Translate, TheLastOfTwoEqualFlagsCountsAsItDoesForThem) {
  EXPECT_TRUE(holds(translate(kNxd + "--seed 3 --seed 4", {}).text, "seed = 4 "));
}

TEST(Translate, WhatStaysAnotherTrainingIsAWarning) {
  const TestDirectory dir;
  const auto warned = [&](const std::string& name, const std::string& text) {
    write_file(dir / name, text);
    const Translation made = translate((dir / name).string(), 4);
    for (const std::string& line : made.warnings) {
      if (line.starts_with("CAUTION")) return line;
    }
    return std::string();
  };
  const std::string axolotl = "base_model: /m\nlearning_rate: 1e-4\nwarmup_steps: 5\n";
  EXPECT_TRUE(holds(warned("a.yaml", axolotl + "micro_batch_size: 2\nbatch_size: 64\n"),
                    "batch_size = 64: taken as the sequences of one replica per step"));
  EXPECT_EQ(warned("b.yaml", axolotl + "micro_batch_size: 2\n"), "");
  EXPECT_TRUE(holds(warned("c.toml", "[training]\ndtype = 'bfloat16'\n"),
                    "training.dtype = bfloat16: their weights, gradients and moments"));
  EXPECT_EQ(warned("d.toml", "[training]\ndtype = 'float32'\n"), "");
  const auto nanotron = [](const std::string& decay) {
    return "parallelism: {dp: 4}\ntokens: {train_steps: 1000}\noptimizer: "
           "{learning_rate_scheduler: {learning_rate: 0.001, lr_warmup_steps: 100, "
           "min_decay_lr: 0, lr_decay_starting_step: " +
           decay + "}}\n";
  };
  EXPECT_TRUE(holds(warned("e.yaml", nanotron("800")),
                    "= 900 steps, up to step 1700, and the run ends at 1000"));
  EXPECT_TRUE(holds(warned("f.yaml", nanotron("50, lr_decay_steps: 950")),
                    "lr_decay_starting_step 50 lies in the warm-up of 100 steps"));
  EXPECT_EQ(warned("g.yaml", nanotron("800, lr_decay_steps: 200")), "");
}

TEST(Translate, ABatchThatDoesNotDivideIntoMicroBatchesIsRefused) {
  const TestDirectory dir;
  const auto with = [&](const std::string& text) {
    write_file(dir / "a.yaml", "base_model: /m\nlearning_rate: 1e-4\n" + text);
    return refusal((dir / "a.yaml").string());
  };
  EXPECT_TRUE(holds(with("micro_batch_size: 3\nbatch_size: 64\n"),
                    "batch_size = 64 does not divide into micro batches of "
                    "micro_batch_size = 3"));
  EXPECT_TRUE(
      holds(with("micro_batch_size: 0\nbatch_size: 64\n"), "micro_batch_size = 0"));
  EXPECT_TRUE(
      holds(with("batch_size: 64\ngradient_accumulation_steps: 2\n"), "are both given"));
}

TEST(Translate, NothingInAValueEndsAComment) {
  const Translation made =
      translate(kNxd + "--zzz '1\n[optimizer]\nlr = 9' --tb_dir 'a\nclip = 7'", {});
  const RunConfig config = parse_run_config(made.text, "run.toml").config;
  EXPECT_EQ(config.optimizer.lr, 1e-4);
  EXPECT_EQ(config.optimizer.clip, 1.0);
  EXPECT_TRUE(holds(made.text, "1\\n[optimizer]"));
}

TEST(Translate, AWrongValueIsNamedWithItsFlag) {
  EXPECT_TRUE(
      holds(refusal(kNxd + "--seed abc"), "--seed = abc: expected a whole number"));
  EXPECT_TRUE(holds(refusal(kNxd + "--beta1 x"), "--beta1 = x: expected a number"));
  EXPECT_TRUE(holds(refusal(kNxd + "--weight_decay nan"), "expected a number"));
  EXPECT_TRUE(holds(refusal(kNxd + "--seed"), "--seed = (nothing): expected a value"));
  EXPECT_TRUE(
      holds(refusal(kNxd + "--use_zero1_optimizer maybe"), "expected true or false"));
  EXPECT_TRUE(holds(refusal(kNxd + "--train_batch_size 5 --num_microbatches 2"),
                    "5 does not divide into num_microbatches 2"));
}

TEST(Translate, WhatIsNoTrainingSaysWhatDoesItHere) {
  EXPECT_TRUE(holds(refusal("python convert_checkpoints.py --tp_size 32"),
                    "longhaul import SHARDS"));
  EXPECT_TRUE(
      holds(refusal("python3 get_dataset.py --llama-version 3"), "longhaul data build"));
  EXPECT_TRUE(holds(refusal("srun bash run_llama3_70B_tp_pp.sh"), "is a shell script"));
  EXPECT_TRUE(holds(refusal("python other.py --x 1"),
                    "other.py is no training script that is known"));
  EXPECT_TRUE(holds(refusal("torchrun --nproc_per_node 8"),
                    "holds no command of a training script"));
  EXPECT_TRUE(holds(refusal("torchrun run_llama_nxd.py"), "is given no flags"));
}

TEST(Translate, AWrongFileIsNamed) {
  const TestDirectory dir;
  const auto with = [&](const std::string& name, const std::string& text) {
    write_file(dir / name, text);
    return refusal((dir / name).string());
  };
  EXPECT_TRUE(holds(refusal((dir / "none.toml").string()), "no such file"));
  EXPECT_TRUE(holds(refusal(dir.path().string()), "a directory"));
  EXPECT_TRUE(holds(refusal("  "), "--flags: is empty"));
  EXPECT_TRUE(holds(with("a.toml", ""), "a.toml: is empty"));
  EXPECT_TRUE(holds(with("a.yaml", std::string("a: \0b", 5)), "is no text (byte 3)"));
  EXPECT_TRUE(holds(with("b.yaml", "a: \xff"), "is no text (byte 3)"));
  EXPECT_TRUE(holds(with("c.yaml", "a: 1\n"), "YAML of no system that is known"));
  EXPECT_TRUE(holds(with("d.toml", "[a]\nb = 1\n"), "has no section [training]"));
  EXPECT_TRUE(holds(with("e.toml", "[run]\ndir = 'x'\n[data]\nseq_len = 1\n"),
                    "is a run file of longhaul already"));
  EXPECT_TRUE(holds(with("f.txt", "hello world\n"), "hello is no training script"));
  std::string many = "[training]\n";
  for (int i = 0; i < 10'001; ++i) many += "k" + std::to_string(i) + " = 1\n";
  EXPECT_TRUE(
      holds(with("h.toml", many), "10001 settings; a training has at most 10000"));
  EXPECT_TRUE(holds(with("g.yaml", std::string(5 << 20, '#')), "g.yaml"));
}

TEST(Translate, AMistypedTomlIsNamedWithItsPlace) {
  const TestDirectory dir;
  write_file(dir / "a.toml", "[training]\nsteps = \n");
  const std::string message =
      message_of<ConfigError>([&] { translate((dir / "a.toml").string(), {}); });
  EXPECT_TRUE(holds(message, "a.toml:2:")) << message;
}

/// Returns the words of a system's table with Carry::Rule that the rules do not read.
std::string unread(dictionary::OtherSystem system, const std::string& command) {
  std::string out;
  for (const dictionary::OtherWord& word : dictionary::words_of(system)) {
    if (word.carry != dictionary::Carry::Rule || !word.note.empty()) continue;
    for (const std::string& name : split_words(word.names)) {
      const std::string flag = "--" + name;
      try {
        const std::string text = translate(command + " " + flag + " 1", 8).text;
        if (holds(text, "CAUTION: " + flag + " ")) out += flag + " ";
      } catch (const InputError& error) {
        // A value that a rule refuses was read by the rule.
        EXPECT_TRUE(holds(error.message(), name)) << error.message();
      }
    }
  }
  return out;
}

TEST(Translate, EachWordThatARuleCarriesOverIsRead) {
  using enum dictionary::OtherSystem;
  EXPECT_EQ(unread(NxdPipeline, "python run_llama_nxd.py --lr 1"), "");
  EXPECT_EQ(unread(NxdZero, "python tp_zero1_llama_hf_pretrain.py --lr 1"), "");
  EXPECT_EQ(unread(NxdZero, "python tp_dp_gpt_neox_20b_hf_pretrain.py --lr 1"), "");
  EXPECT_EQ(unread(Bert, "python dp_bert_large_hf_pretrain_hdf5.py --lr 1"), "");
  EXPECT_EQ(unread(Smp, "python train_external.py --lr 1"), "");
  EXPECT_EQ(
      unread(Smp, "python train_external.py --hf_pretrained_model_name_or_dir /m --lr 1"),
      "");
  EXPECT_EQ(unread(Megatron, "python pretrain_gpt.py --lr 1"), "");
  EXPECT_EQ(unread(Megatron, "python pretrain_gpt.py --lr 1 --mock-data"), "");
}

TEST(Translate, FlagsThatMayBeHiddenLeaveNoDefaultCertain) {
  const std::string given =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --lr 1e-4 --seq-length 64 --bf16 ";
  for (const char* hiding : {"${ARGS[@]}", "$MOE", "$@", "\"$OPTIONS\"", "$(cat f)"}) {
    const Translation made = translate(given + hiding, {});
    EXPECT_FALSE(holds(made.text, "# their default")) << made.text;
    EXPECT_TRUE(holds(made.text, std::string("kind = \"FILL IN: ") +
                                     (*hiding == '"' ? "$OPTIONS" : hiding)))
        << made.text;
    EXPECT_EQ(made.warnings.size(), 1U);
  }
  // The unknown value belongs to a known flag, so it can hold no other flags, and their
  // defaults are certain.
  EXPECT_TRUE(holds(translate(given + "--min-lr $MIN", {}).text, "# their default"));
}

TEST(Translate, HiddenFlagsAskAlsoWhereEachValueIsGiven) {
  const Translation made =
      translate(kNxd +
                    "--seq_len 8 --max_steps 9 --pipeline_parallel_size 1 "
                    "--context_parallel_size 1 "
                    "--train_batch_size 64 --num_microbatches 16 --beta1 0.9 --beta2 0.9 "
                    "--model_path "
                    "/m $EXTRA",
                {});
  EXPECT_FALSE(made.to_fill.empty());
}

TEST(Translate, ASettingThatNoRuleReadsIsNotCarriedOver) {
  const Translation made =
      translate("python pretrain_gpt.py --lr 1 --mock-data --data-path corpus", 8);
  EXPECT_TRUE(
      holds(made.text, "#   --data-path corpus: --mock-data takes random tokens"));
  EXPECT_EQ(made.carried, 2);
  EXPECT_EQ(made.without_key, 1);
}

TEST(Translate, MegatronsDropoutIsAlwaysSpokenOf) {
  const std::string command = "python pretrain_gpt.py --lr 1 ";
  EXPECT_TRUE(holds(translate(command, 8).text,
                    "#   attention_dropout 0.1, their default: set model.override's"));
  const std::string given = translate(command + "--hidden-dropout 0.2", 8).text;
  EXPECT_TRUE(
      holds(given, "#   --hidden-dropout 0.2: longhaul's decoders have no such dropout"));
  EXPECT_TRUE(holds(given, "#   attention_dropout 0.1, their default"));
}

}  // namespace
}  // namespace longhaul::translate
