#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "apps/inputs/data_arguments.h"
#include "apps/objects/local_input.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "longhaul/base/json.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/build_examples.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/system/progress.h"
#include "longhaul/tokenizer/file/auto_tokenizer.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct BertCommand {
  BuildArguments common;
  data::BuildExamplesOptions build;
  std::string tokenizer;
  std::string sentences = "lines";
  int64_t max_predictions = 0;
};

/// Returns how many tokens of a row are predicted: 15 % of the row and a little more, as
/// in the published data of the usual lengths.
int64_t usual_predictions(int64_t seq_len) {
  if (seq_len == 128) return 20;
  if (seq_len == 512) return 80;
  // The bound only keeps the product below from overflowing; such a long row is refused
  // later.
  seq_len = std::min<int64_t>(seq_len, 1 << 30);
  return std::max<int64_t>(1, (seq_len * 80 + 511) / 512);
}

/// Returns the first row of the first shard, read as training reads it.
std::string sample(data::ShardReader& reader, const tokenizer::Tokenizer& tokenizer,
                   const fs::path& shard) {
  const data::BertShard rows = reader.read(shard, tokenizer.vocab_size());
  const auto mask = rows.input_mask(0);
  const auto ids = rows.input_ids(0);
  std::string text;
  for (size_t i = 0; i < ids.size() && mask[i] == 1; ++i) {
    const auto token = tokenizer.id_to_token(static_cast<tokenizer::TokenId>(ids[i]));
    if (i > 0) text += ' ';
    text += token ? *token : "?";
  }
  return text;
}

void run_bert(const BertCommand& command, const objects::Access& objects) {
  // The reader is made first of all, because it forks a process, which has to be small
  // and to have one thread.
  data::ShardReader reader;
  data::BuildExamplesOptions options = command.build;
  set_build_options(command.common, options);
  options.inputs.objects = objects.store();
  options.sentences = command.sentences == "lines" ? data::SentenceRule::Lines
                                                   : data::SentenceRule::Punctuation;
  options.examples.mask.max_predictions =
      command.max_predictions > 0 ? command.max_predictions
                                  : usual_predictions(options.examples.seq_len);
  // A build that was interrupted goes on in OUT.building. If a directory was built whole
  // and only its upload was interrupted, it is made again, since a build refuses to
  // replace one.
  const objects::OutputPlace out(
      command.common.out, objects,
      output_use({.replaces = options.force ? data::kBertRecordName : ""}));
  options.out = out.path();
  const auto tokenizer =
      tokenizer::Tokenizer::load(local_input(command.tokenizer, objects));
  tokenizer::refuse_moved_pieces(*tokenizer);
  std::ranges::for_each(tokenizer->warnings(), say_warning);
  system::StagedProgress stages;
  options.progress = [&](const std::string& now, int64_t done, int64_t total) {
    stages.update("data build: " + now, now == "reading" ? "bytes" : "shards", done,
                  total);
  };
  options.note = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const data::BertRecord record = data::build_examples(*tokenizer, options);
  stages.finish();
  const data::DataDescription made = data::describe_bert(options.out).value();
  if (command.common.json) {
    fmt::print("{}\n", out.as_named(json_text(made.json)));
  } else {
    fmt::print("{}first example   {}\n", out.as_named(made.text),
               sample(reader, *tokenizer, options.out / record.shards.front().name));
  }
  out.upload();
}

void add_what(CLI::App& verb, BertCommand& command) {
  add_text_arguments(verb, command.common);
  verb.add_option("--tokenizer", command.tokenizer,
                  "BERT's tokenizer: a tokenizer.json, or a directory that holds one")
      ->required();
  verb.add_option("--out", command.common.out, "the directory to make for the shards")
      ->required();
  verb.add_option("--sentences", command.sentences,
                  "lines: each line of a text is a sentence, blank lines separate "
                  "documents; punctuation: sentences end at . ! ? and at lines' ends")
      ->check(CLI::IsMember({"lines", "punctuation"}))
      ->capture_default_str();
  add_bad_record_arguments(verb, command.common);
}

void add_examples(CLI::App& verb, BertCommand& command) {
  data::BuildExamplesOptions& build = command.build;
  verb.add_option("--seq-len", build.examples.seq_len, "tokens of an example")
      ->capture_default_str();
  verb.add_option("--max-predictions", command.max_predictions,
                  "largest number of masked tokens in an example; by default 20 for 128 "
                  "tokens, 80 for 512")
      ->check(CLI::PositiveNumber);
  verb.add_option("--mask-share", build.examples.mask.share,
                  "share of the tokens that the model predicts; 80 % of these tokens "
                  "become [MASK], 10 % stay, 10 % become another token")
      ->capture_default_str();
  verb.add_flag("--whole-words", build.examples.mask.whole_words,
                "mask all pieces of a word or none");
  verb.add_option("--duplicates", build.duplicates,
                  "passes over the documents; each pass pairs and masks them anew")
      ->capture_default_str();
  verb.add_option("--short-share", build.examples.short_share,
                  "share of the documents whose examples have a random shorter length")
      ->capture_default_str();
  verb.add_option("--seed", build.examples.seed, "seed of all random choices")
      ->capture_default_str();
  verb.add_option("--shards", build.shards,
                  "number of files; 0: files of about 64 MiB in memory each, at least 16")
      ->capture_default_str();
}

}  // namespace

void add_data_build_bert(CLI::App& data, Outcome& outcome) {
  const auto command = std::make_shared<BertCommand>();
  CLI::App* verb = data.add_subcommand(
      "build-bert", "Turns text into HDF5 shards of BERT examples (data build --bert)");
  add_what(*verb, *command);
  add_examples(*verb, *command);
  add_run_arguments(
      *verb, command->common,
      "memory for the shards that are being made, such as 8GB; by default 4 GiB",
      "existing BERT examples");
  verb->footer(
      "After a kill or a stop, the same command goes on where the build was and ends "
      "with the same bytes.\n"
      "Example: longhaul data build --bert 'wiki/*.jsonl.gz' --tokenizer models/bert "
      "--out data/bert-128 --sentences punctuation --seq-len 128");
  verb->callback([command, &outcome] { run_bert(*command, outcome.objects); });
}

void expand_build_bert(int& argc, char** argv) {
  static char verb[] = "build-bert";
  if (argc < 4 || std::strcmp(argv[1], "data") != 0 ||
      std::strcmp(argv[2], "build") != 0) {
    return;
  }
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "--bert") != 0) continue;
    argv[2] = verb;
    for (int next = i + 1; next < argc; ++next) argv[next - 1] = argv[next];
    argv[--argc] = nullptr;
    return;
  }
}

}  // namespace longhaul::apps
