#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/inputs/data_arguments.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/documents.h"
#include "longhaul/system/progress.h"
#include "longhaul/tokenizer/learn/learn_tokenizer.h"

namespace longhaul::apps {
namespace {

struct TrainTokenizerCommand {
  BuildArguments common;  ///< the inputs of it
  std::string out;
  std::string split = "llama3";
  std::vector<std::string> special_tokens;
  tokenizer::TrainOptions options;
};

tokenizer::TrainOptions train_options(const TrainTokenizerCommand& command) {
  tokenizer::TrainOptions options = command.options;
  options.split = command.split == "gpt2" ? tokenizer::SplitPattern::Gpt2
                                          : tokenizer::SplitPattern::Llama3;
  tokenizer::set_default_special_tokens(options);
  if (!command.special_tokens.empty()) {
    options.special_tokens = command.special_tokens;
    options.bos_token = command.special_tokens.front();
    options.eos_token = command.special_tokens.size() > 1 ? command.special_tokens[1]
                                                          : command.special_tokens[0];
  }
  return options;
}

void run_train_tokenizer(const TrainTokenizerCommand& command,
                         const objects::Access& objects) {
  const fs::path out = command.out;
  if (fs::exists(out / "tokenizer.json")) {
    fail_input("data", "{} holds a tokenizer already; choose another --out",
               out.string());
  }
  tokenizer::TrainOptions options = train_options(command);
  data::InputOptions inputs = input_options(command.common);
  inputs.objects = objects.store();
  data::DocumentReader documents(std::move(inputs));
  if (!documents.inputs().passed_over().empty()) {
    fmt::print(stderr, "{}\n", documents.inputs().passed_over());
  }
  system::Progress reading("read text", "bytes");
  options.on_read = [&](uint64_t) {
    reading.update(static_cast<int64_t>(documents.bytes_read()),
                   static_cast<int64_t>(documents.inputs().stored_bytes()));
  };
  const tokenizer::TrainedBpe trained = tokenizer::train_bpe(
      [&](std::string& text) { return documents.next(text); }, options);
  reading.finish();
  tokenizer::write_tokenizer(out, trained, options);
  fmt::print("tokenizer       {}\n  {}, {}, from {}, {}\n", out.string(),
             counted(std::ssize(trained.vocab), "token"),
             counted(std::ssize(trained.merges), "merge"),
             counted(static_cast<int64_t>(trained.texts), "document"),
             human_bytes(trained.text_bytes));
  fmt::print("  BOS {}, EOS {}\n", options.bos_token, options.eos_token);
  if (trained.vocab.size() < options.vocab_size) {
    fmt::print("  fewer than the {} asked for: no pair of pieces is left to merge\n",
               grouped(static_cast<int64_t>(options.vocab_size)));
  }
  if (documents.dropped().total() > 0) {
    fmt::print("left out        {}\n{}", counted(documents.dropped().total(), "record"),
               documents.dropped().describe());
  }
}

}  // namespace

void add_train_tokenizer(CLI::App& data_verb, Outcome& outcome) {
  const auto command = std::make_shared<TrainTokenizerCommand>();
  CLI::App* verb =
      data_verb.add_subcommand("train-tokenizer", "Trains a byte-level BPE tokenizer");
  add_text_arguments(*verb, command->common);
  verb->add_option("--out", command->out, "the directory to make for tokenizer.json")
      ->required();
  verb->add_option("--vocab-size", command->options.vocab_size,
                   "size of the vocabulary: special tokens, 256 bytes and merges")
      ->capture_default_str();
  verb->add_option("--split", command->split,
                   "pattern that cuts text into pieces before merging")
      ->check(CLI::IsMember({"gpt2", "llama3"}))
      ->capture_default_str();
  verb->add_option("--special-tokens", command->special_tokens,
                   "special tokens in place of those of --split; the first is BOS, the "
                   "second EOS (a single one is both)");
  verb->add_option("--min-frequency", command->options.min_frequency,
                   "pairs that are seen less often are not merged")
      ->capture_default_str();
  verb->add_option("--threads", command->options.threads, "number of threads that count")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->footer(
      "Example: longhaul data train-tokenizer 'corpus/*.txt' --vocab-size 16384 "
      "--split llama3 --out models/tok");
  verb->callback([command, &outcome] { run_train_tokenizer(*command, outcome.objects); });
}

}  // namespace longhaul::apps
