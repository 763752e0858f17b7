#include "longhaul/dictionary/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/config/fields.h"
#include "tests/support/other_trainers.h"
#include "tests/support/settings.h"

namespace longhaul::config {
namespace {

using dictionary::Carry;
using dictionary::find_word;
using dictionary::OtherSystem;
using dictionary::OtherWord;
using dictionary::system_name;
using dictionary::word_name;
using dictionary::words_of;

constexpr OtherSystem kEverySystem[] = {
    OtherSystem::Common,     OtherSystem::NxdPipeline,  OtherSystem::NxdZero,
    OtherSystem::Bert,       OtherSystem::Smp,          OtherSystem::Megatron,
    OtherSystem::Torchtitan, OtherSystem::Nanotron,     OtherSystem::Axolotl,
    OtherSystem::Trl,        OtherSystem::LlamaFactory, OtherSystem::Environment};

TEST(OtherWords, NameKeysThatExistAndReasonsWhereThereIsNone) {
  RunConfig defaults;
  const std::vector<std::string> ours = all_names(sections_of(defaults));
  for (const OtherSystem system : kEverySystem) {
    std::set<std::string> seen;
    for (const OtherWord& word : words_of(system)) {
      SCOPED_TRACE(std::string(system_name(system)) + ": " + std::string(word.names));
      for (const std::string& name : split_words(word.names)) {
        EXPECT_TRUE(seen.insert(name).second);
        EXPECT_EQ(name, word_name(name));
      }
      for (const std::string& key : split_words(word.keys)) {
        EXPECT_NE(std::ranges::find(ours, key), ours.end()) << key;
      }
      EXPECT_TRUE(word.carry != Carry::None || (!word.note.empty() && word.keys.empty()));

      EXPECT_TRUE(word.carry != Carry::Copy || !word.keys.empty());
    }
  }
}

std::vector<std::string> codes(const std::string& text) {
  static const std::regex kCode("`([^`]+)`");
  std::vector<std::string> found;
  for (auto i = std::sregex_iterator(text.begin(), text.end(), kCode);
       i != std::sregex_iterator(); ++i) {
    found.push_back((*i)[1]);
  }
  return found;
}

/// One row of a table in docs/migrating.md: the flags of the other system, and the keys
/// of longhaul that the row names for them.
struct Row {
  std::vector<std::string> flags;
  std::set<std::string> keys;
  bool none = false;
  bool as_above = false;
};

std::vector<Row> rows_below(const std::string& heading) {
  RunConfig defaults;
  const std::vector<std::string> ours = all_names(sections_of(defaults));
  const std::string text = read_text(source_dir() / "docs/migrating.md");
  size_t at = text.find("\n" + heading + "\n");
  EXPECT_NE(at, std::string::npos) << heading;
  at += heading.size() + 2;
  const std::string part = text.substr(at, text.find("\n#", at) - at);
  std::vector<Row> rows;
  static const std::regex kRow("\\n\\| ([^|]+) \\| ([^\\n]+) \\|");
  for (auto i = std::sregex_iterator(part.begin(), part.end(), kRow);
       i != std::sregex_iterator(); ++i) {
    const std::string right = (*i)[2];
    static const std::regex kChoices("\\([^)]*\\)");
    const std::string left = std::regex_replace((*i)[1].str(), kChoices, "");
    Row row{codes(left), {}, right.starts_with("none"), right == "as above"};
    static const std::regex kKey("([a-z]+\\.[a-z_]+|\\[[a-z]+\\])");
    for (auto key = std::sregex_iterator(right.begin(), right.end(), kKey);
         key != std::sregex_iterator(); ++key) {
      const std::string name = (*key)[1];
      for (const std::string& one : ours) {
        const bool section =
            name[0] == '[' && one.starts_with(name.substr(1, name.size() - 2) + ".");
        if (one == name || section) row.keys.insert(one);
      }
    }
    if (!row.flags.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

void compare(const std::string& heading, const std::vector<OtherSystem>& systems) {
  size_t compared = 0;
  for (const Row& row : rows_below(heading)) {
    for (const std::string& flag : row.flags) {
      if (flag.find_first_of(" .") != std::string::npos) continue;  // scripts and choices
      if (!std::all_of(flag.begin(), flag.end(), [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
                   c == '*';
          })) {
        continue;
      }
      SCOPED_TRACE(fmt::format("{}: {}", heading, flag));
      const OtherWord* word = nullptr;
      for (const OtherSystem system : systems) {
        if (word == nullptr) word = find_word(system, word_name(flag));
      }

      ASSERT_NE(word, nullptr);
      ++compared;
      if (row.as_above) continue;
      if (row.none || row.keys.empty()) {
        EXPECT_TRUE(word->keys.empty()) << word->keys;
        continue;
      }
      const std::vector<std::string> keys = split_words(word->keys);
      EXPECT_FALSE(keys.empty());
      for (const std::string& key : keys) EXPECT_TRUE(row.keys.contains(key)) << key;
    }
  }
  EXPECT_GT(compared, 5U);
}

TEST(OtherWords, AreThoseOfTheTablesForMigrating) {
  compare("## A and B: `run_llama_nxd.py`",
          {OtherSystem::NxdPipeline, OtherSystem::NxdZero});
  compare("### Environment of A, B and C", {OtherSystem::Environment});
  compare("## C: arcee-trainium-recipes", {OtherSystem::NxdZero});
  compare("## D: BERT-large", {OtherSystem::Bert});
  compare("## E: SageMaker Model Parallel v2",
          {OtherSystem::Smp, OtherSystem::Environment});
}

TEST(OtherWords, AnswerAMistypedKeyOfAFile) {
  EXPECT_EQ(refused("learning_rate = 1e-4\n"),
            "[config] run.toml:13:1: unknown key optimizer.learning_rate; did you mean "
            "optimizer.lr?");
  EXPECT_EQ(refused("max_grad_norm = 1.0\n"),
            "[config] run.toml:13:1: unknown key optimizer.max_grad_norm; did you mean "
            "optimizer.clip?");
  EXPECT_EQ(
      refused("[parallel]\ntensor_model_parallel_size = 2\n"),
      "[config] run.toml:14:1: unknown key parallel.tensor_model_parallel_size; did you "
      "mean parallel.tp?");
  EXPECT_EQ(
      refused("use_flash_attention = 1\n"),
      "[config] run.toml:13:1: unknown key optimizer.use_flash_attention; other trainers "
      "have it, and no key takes its place: no form of attention holds s x s");
  EXPECT_EQ(refused("grad_accum_usteps = 1\n"),
            "[config] run.toml:13:1: unknown key optimizer.grad_accum_usteps; here "
            "batch.global_size says it: the accumulation follows: batch.global_size / "
            "(batch.micro_size x data-parallel ranks)");
}

/// Returns the keys that a message offers.
std::vector<std::string> offered(const std::string& message) {
  static const std::regex kOffer("; (did you mean|here) ([^?]*?)(\\?| says? it)");
  std::smatch found;
  if (!std::regex_search(message, found, kOffer)) return {};
  std::vector<std::string> keys;
  for (const std::string& word : split_words(found[2].str())) {
    if (word != "or" && word != "and") keys.push_back(word);
  }
  return keys;
}

TEST(OtherWords, NoNameOfAnotherTrainerLeadsToAKeyOfAnotherMeaning) {
  for (const NameOfOthers& entry : kNamesOfOthers) {
    const std::vector<std::string> wanted = split_words(entry.keys);
    for (const std::string& name : split_words(entry.names)) {
      const std::string message =
          refused("", {fmt::format("{}.{}=1", entry.section, name)});
      SCOPED_TRACE(message);
      for (const std::string& key : offered(message)) {
        EXPECT_NE(std::ranges::find(wanted, key), wanted.end()) << key;
      }
      const bool same = message.find("; did you mean ") != std::string::npos;
      EXPECT_EQ(same, entry.kind == 's');
      EXPECT_EQ(offered(message).empty(), entry.kind == 'n');
      EXPECT_NE(message.find(entry.why), std::string::npos);
    }
  }
}

TEST(OtherWords, AnswerValuesOfOtherTrainers) {
  struct Case {
    const char* key;
    const char* value;
    const char* answer;
  };
  constexpr Case kCases[] = {
      {"precision.compute", "bfloat16", "did you mean \"bf16\"?"},
      {"precision.compute", "BF16", "did you mean \"bf16\"?"},
      {"precision.compute", "true", "did you mean \"bf16\"?"},
      {"precision.compute", "float32", "did you mean \"fp32\"?"},
      {"precision.compute", "fp16", "bf16 needs no loss scale"},
      {"precision.compute", "float16", "bf16 needs no loss scale"},
      {"precision.compute", "tf32", "products are bf16, or fp32 in full"},
      {"precision.compute", "nf4", "weights are never quantized"},
      {"precision.reduce", "float32", "did you mean \"fp32\"?"},
      {"precision.master", "bf16",
       "masters in bf16 are rounded stochastically: \"bf16_sr\""},
      {"optimizer.kind", "adamw_torch", "did you mean \"adamw\"?"},
      {"optimizer.kind", "adamw_torch_fused", "did you mean \"adamw\"?"},
      {"optimizer.kind", "AdamW", "did you mean \"adamw\"?"},
      {"optimizer.kind", "adamw_hf",
       "it is \"adamw\" with optimizer.convention = \"hf\""},
      {"optimizer.kind", "adam", "it is \"adamw\", whose weight decay is decoupled"},
      {"optimizer.kind", "adamw_bnb_8bit",
       "optimizer state is fp32 or bf16 (precision.moments), of adamw or lamb"},
      {"optimizer.kind", "sgd", "no other optimizer is there"},
      {"optimizer.kind", "muon", "no other optimizer is there"},
      {"schedule.kind", "cosine_with_restarts",
       "a schedule has no restarts; schedule.continue goes on after its end"},
      {"schedule.kind", "CosineAnnealing",
       "it is \"cosine\" with schedule.warmup_steps and schedule.min_lr"},
      {"schedule.kind", "WarmupDecayLR", "it is \"linear\" with schedule.warmup_steps"},
      {"schedule.kind", "none", "did you mean \"constant\"?"},
      {"optimizer.kind", "torch.optim.AdamW", "did you mean \"adamw\"?"},
      {"schedule.kind", "polynomial", "no other schedule is there"},
      {"schedule.kind", "constant_with_warmup",
       "it is \"constant\" with schedule.warmup_steps"},
      {"schedule.kind", "WSD", "did you mean \"wsd\"?"},
      {"schedule.decay", "1-sqrt", "did you mean \"sqrt\"?"},
      {"parallel.zero", "full_shard", "did you mean 3?"},
      {"parallel.zero", "none", "did you mean 0?"},
      {"parallel.zero", "true",
       "1 shards the optimizer's state, 2 the gradients too, 3 the weights too"},
      {"parallel.tp", "auto", "`longhaul new MODEL DATA` chooses values for a machine"},
      {"batch.micro_size", "auto",
       "`longhaul new MODEL DATA` chooses values for a machine"},
      {"optimizer.clip", "none", "did you mean 0?"},
      {"optimizer.clip", "false", "did you mean 0?"},
      {"checkpoint.resume", "auto", "did you mean \"latest\"?"},
      {"checkpoint.resume", "true", "did you mean \"latest\"?"},
      {"checkpoint.resume", "step_4", "write a path with a slash, as \"./step_4\""},
      {"checkpoint.every", "epoch", "it is a number of steps"},
      {"run.device", "cuda:0", "; none is named by a number"},
      {"parallel.zero", "shard_grad_op", "did you mean 2?"},
      {"parallel.zero", "hybrid_shard", "it is 3 with parallel.shard_group = \"node\""},
      {"parallel.pipeline", "1F1B", "did you mean \"1f1b\"?"},
      {"parallel.pipeline", "Interleaved1F1B", "did you mean \"interleaved\"?"},
      {"parallel.pipeline", "dualpipe", "no other order is there"},
      {"parallel.context", "allgather", "did you mean \"gather\"?"},
      {"parallel.context", "ulysses", "over sequences there are ring and gather"},
      {"memory.recompute", "true", "did you mean \"full\"?"},
      {"memory.recompute", "false", "did you mean \"none\"?"},
      {"memory.recompute", "flash_attention_2",
       "memory.recompute: \"flash_attention_2\" is not one of \"none\", "
       "\"selective\", \"full\""},
  };
  for (const Case& one : kCases) {
    const std::string message = refused("", {fmt::format("{}={}", one.key, one.value)});
    EXPECT_TRUE(message.ends_with(one.answer)) << message;
  }
  EXPECT_TRUE(refused("", {"run.device=gpu"}).ends_with("did you mean \"cuda\"?"));
}

TEST(OtherWords, AnswerWaysOfOtherTrainersToBalanceExperts) {
  constexpr std::pair<const char*, const char*> kCases[] = {
      {"seq_aux_loss", "did you mean \"sequence\"?"},
      {"aux_loss",
       "it is \"sequence\", which is the same with one sequence in a micro batch"},
      {"global_aux_loss", "it is \"global\", which takes the loads of the step before"},
      {"transformers", "did you mean \"pooled\"?"},
      {"none", "did you mean \"off\"?"},
      {"false", "did you mean \"off\"?"},
      {"true", "it says how: \"sequence\", \"global\" or \"pooled\""},
      {"sinkhorn",
       "a term of the loss balances experts: \"sequence\", \"global\" or \"pooled\""},
  };
  for (const auto& [value, answer] : kCases) {
    const std::string message = refused("", {fmt::format("experts.balance={}", value)});
    EXPECT_TRUE(message.ends_with(answer)) << message;
  }
}

TEST(OtherWords, AnswerSectionsOfOtherTrainers) {
  const auto section = [](const std::string& name) {
    return refused("[" + name + "]\nx = 1\n");
  };
  const auto says = [&](const std::string& name, const std::string& words) {
    EXPECT_NE(section(name).find(words), std::string::npos) << section(name);
    EXPECT_EQ(section(name).find("did you mean"), std::string::npos) << section(name);
  };
  says("lora", "; here [adapter] has such settings");
  says("qlora",
       "unknown section [qlora]; other trainers have it, and no section takes its "
       "place: weights are never quantized");
  says("training", "; here [run] and [batch] and [optimizer] have such settings");
  says("lr_scheduler", "; here [schedule] and [optimizer] have such settings");
  says("tokenizer", "longhaul data build");
  says("dataset", "; here [data] has such settings");
  says("wandb", "metrics and event files lie in run.dir");
  says("fsdp", "; here [parallel] has such settings");
  says("exp_manager", "; here [run] and [checkpoint] and [log] have such settings");
  says("train_module", "; here [optimizer] and [schedule]");
  says("strategy", "; here [parallel] and [run] have such settings");
  says("moe", "; here [experts] and [parallel] and [model] have such settings");
  says("monitoring", "; here [log] has such settings");
  says("inference", "longhaul generate continues a text");
  says("gpu", "unknown section [gpu]; valid sections: run, model");
  EXPECT_NE(section("optimiser").find("did you mean [optimizer]?"), std::string::npos);
}

TEST(OtherWords, AWordOfItsSectionIsNotTheLengthOfTheRun) {
  const auto key = [](const std::string& name) { return refused("", {name + "=1"}); };
  const auto says = [&](const std::string& name, const std::string& words) {
    EXPECT_NE(key(name).find(words), std::string::npos) << key(name);
  };
  says("log.steps", "; did you mean log.every?");
  says("checkpoint.steps", "; did you mean checkpoint.every?");
  says("validation.interval", "; did you mean validation.every?");
  says("optimizer.type", "; here optimizer.kind says it");
  says("schedule.type", "; here schedule.kind says it");
  says("model.path", "; here model.config and init.weights say it");
  says("data.path", "; here data.train says it");
  says("data.val", "; here data.validation says it");
  says("checkpoint.format", "checkpoints have one form");
  says("run.seed_everything", "; did you mean run.seed?");
}

TEST(OtherWords, AFileOfSeveralFilesIsToldThatItStandsAlone) {
  for (const char* name : {"defaults", "include", "_base_"}) {
    const std::string message = message_of<ConfigError>(
        [&] { parse_run_config(std::string(name) + " = 'x'\n", "run.toml"); });
    EXPECT_NE(message.find("a run file stands alone"), std::string::npos) << message;
  }
}

TEST(OtherWords, AnswerAMistypedSetting) {
  const auto set = [](const std::string& text) { return refused("", {text}); };
  EXPECT_EQ(set("optimizer.learning_rate=1"),
            "[config] --set optimizer.learning_rate=1: unknown key "
            "optimizer.learning_rate; did "
            "you mean optimizer.lr?");
  EXPECT_EQ(set("train_iters=5"),
            "[config] --set train_iters=5: \"train_iters\" is not a key; expected "
            "section.key=value; did you mean run.steps?");
  EXPECT_EQ(
      set("optimizer.learning_rate="),
      "[config] --set optimizer.learning_rate=: unknown key optimizer.learning_rate; did "
      "you mean optimizer.lr?");
}

}  // namespace
}  // namespace longhaul::config
