#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/progress.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/build_store.h"
#include "longhaul/data/store/sample.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct BuildCommand {
  std::vector<std::string> inputs;
  std::string tokenizer;
  std::string out;
  std::string field = "text";
  std::string special = "tokenizer+eos";
  std::string holdout = "0%";
  std::string bad_records = "fail";
  int64_t seq_len = 0;
  int64_t global_size = 0;
  int threads = 0;
  bool force = false;
  bool json = false;
};

/// "1%" or "0.01".
double parse_share(const std::string& text) {
  const bool percent = !text.empty() && text.back() == '%';
  const char* const end = text.data() + text.size() - (percent ? 1 : 0);
  double value = -1.0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (percent) value /= 100.0;
  if (error != std::errc() || stop != end || !(value >= 0.0 && value < 1.0)) {
    throw InputError("data",
                     fmt::format("--holdout '{}' is not a share of the documents; "
                                 "write for example 1% or 0.01",
                                 text));
  }
  return value;
}

data::BuildOptions build_options(const BuildCommand& command) {
  data::BuildOptions options;
  options.files = data::expand_inputs(command.inputs);
  options.out = command.out;
  options.field = command.field;
  options.special = data::policy_from_name(command.special).value();
  options.holdout = parse_share(command.holdout);
  options.bad_records =
      command.bad_records == "drop" ? data::BadRecords::Drop : data::BadRecords::Fail;
  options.force = command.force;
  options.threads = command.threads;
  return options;
}

int64_t sequences_of(const data::StoreInfo& info, int64_t seq_len) {
  return (info.tokens - 1) / seq_len;
}

Json to_json(const fs::path& path, const data::StoreInfo& info,
             const BuildCommand& command) {
  Json json = {{"path", path.string()},          {"documents", info.documents},
               {"tokens", info.tokens},          {"text_bytes", info.text_bytes},
               {"dropped", info.dropped},        {"special_tokens", info.special_tokens},
               {"fingerprint", info.fingerprint}};
  if (command.seq_len > 0) {
    json["sequences"] = sequences_of(info, command.seq_len);
    if (command.global_size > 0) {
      json["steps_per_epoch"] = sequences_of(info, command.seq_len) / command.global_size;
    }
  }
  return json;
}

void print_store(const char* title, const fs::path& path, const data::StoreInfo& info,
                 const BuildCommand& command) {
  fmt::print("{:<15} {}\n  {} documents, {} tokens ({:.2f} bytes each), {}\n", title,
             path.string(), grouped(info.documents), grouped(info.tokens),
             static_cast<double>(info.text_bytes) / static_cast<double>(info.tokens),
             info.selection);
  if (command.seq_len == 0) return;
  const int64_t sequences = sequences_of(info, command.seq_len);
  fmt::print("  {} sequences of {} per epoch", grouped(sequences), command.seq_len);
  if (command.global_size > 0) {
    fmt::print(", {} steps of {}", grouped(sequences / command.global_size),
               command.global_size);
  }
  fmt::print(
      "; {} tokens at the end make no whole sequence\n",
      grouped(std::max<int64_t>(info.tokens - 1 - sequences * command.seq_len, 0)));
}

void print_report(const data::BuildReport& report, const data::Tokenizer& tokenizer,
                  const BuildCommand& command) {
  const data::TokenStore store(report.train_path);
  fmt::print("special tokens  {}\nfirst document  {}\n", report.train.special_tokens,
             data::decoded_sample(store, tokenizer));
  if (report.train.special_tokens_in_text > 0) {
    fmt::print("                {} BOS or EOS tokens stand in the texts themselves\n",
               grouped(report.train.special_tokens_in_text));
  }
  if (report.dropped.total() > 0) {
    fmt::print("left out        {} records\n{}", grouped(report.dropped.total()),
               report.dropped.describe());
  }
  print_store("token store", report.train_path, report.train, command);
  if (report.validation) {
    print_store("validation", *report.validation_path, *report.validation, command);
  }
}

void run_build(const BuildCommand& command) {
  data::BuildOptions options = build_options(command);
  const auto tokenizer = data::Tokenizer::load(command.tokenizer);
  Progress progress("data build", "bytes");
  options.progress = [&](uint64_t done, uint64_t total, int64_t) {
    progress.update(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  const data::BuildReport report = data::build_store(*tokenizer, options);
  progress.finish();
  if (!command.json) {
    print_report(report, *tokenizer, command);
    return;
  }
  Json json = {{"train", to_json(report.train_path, report.train, command)}};
  if (report.validation) {
    json["validation"] = to_json(*report.validation_path, *report.validation, command);
  }
  fmt::print("{}\n", json.dump());
}

void add_build(CLI::App& data) {
  const auto command = std::make_shared<BuildCommand>();
  CLI::App* verb = data.add_subcommand("build", "Turns text into a token store");
  verb->add_option(
          "inputs", command->inputs,
          "text files (one document each) or JSON lines (.jsonl, .json, .ndjson), "
          "plain or .gz; patterns in quotes are expanded")
      ->required();
  verb->add_option(
          "--tokenizer", command->tokenizer,
          "a tokenizer.json, a SentencePiece .model, or a directory that holds one")
      ->required();
  verb->add_option("--out", command->out, "the store's directory, which is made")
      ->required();
  verb->add_option("--field", command->field,
                   "the field of a JSON line that holds the text")
      ->capture_default_str();
  verb->add_option(
          "--special-tokens", command->special,
          "around each document: the tokenizer's own rule and EOS after it, its own "
          "rule alone, BOS before, EOS after, both, or none")
      ->check(CLI::IsMember({"tokenizer+eos", "tokenizer", "bos", "eos", "both", "none"}))
      ->capture_default_str();
  verb->add_option("--holdout", command->holdout,
                   "share of the documents for a validation store OUT-val, such as 1%")
      ->capture_default_str();
  verb->add_option("--bad-records", command->bad_records,
                   "fail at the first broken record, or drop and count them")
      ->check(CLI::IsMember({"fail", "drop"}))
      ->capture_default_str();
  verb->add_option("--seq-len", command->seq_len,
                   "print how many sequences of this length an epoch has")
      ->check(CLI::PositiveNumber);
  verb->add_option("--global-size", command->global_size,
                   "with --seq-len: print how many steps an epoch has")
      ->check(CLI::PositiveNumber);
  verb->add_option("--threads", command->threads, "0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--force", command->force, "replace a token store that stands at --out");
  verb->add_flag("--json", command->json, "print the figures as one JSON object");
  verb->footer(
      "Example: longhaul data build 'corpus/*.jsonl.gz' --tokenizer models/Llama-3-8B "
      "--out data/wiki --holdout 1% --seq-len 8192");
  verb->callback([command] { run_build(*command); });
}

}  // namespace

void add_data(CLI::App& program, Outcome& outcome) {
  CLI::App* verb = program.add_subcommand("data", "Makes training data");
  verb->require_subcommand(1);
  verb->footer("Example: longhaul data build --help");
  add_build(*verb);
  add_train_tokenizer(*verb, outcome);
}

}  // namespace longhaul::apps
