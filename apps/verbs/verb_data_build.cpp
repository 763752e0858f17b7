#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "apps/inputs/data_arguments.h"
#include "apps/objects/local_input.h"
#include "apps/program.h"
#include "apps/tasks.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/chat/chat_format.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/data/store/store.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/signals.h"
#include "longhaul/tokenizer/file/auto_tokenizer.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct BuildCommand {
  BuildArguments common;
  std::string tokenizer;
  data::BuildOptions options;
  std::string special = "tokenizer+eos";
  CLI::Option* special_option = nullptr;  ///< tells whether it was given
  std::string holdout = "0%";
  std::string part_size;
  bool chat = false;
  std::string targets = "assistant";
  std::string date;
  CLI::Option* targets_option = nullptr;  ///< tells whether it was given
  int64_t seq_len = 0;
  int64_t global_size = 0;
};

data::BuildOptions build_options(const BuildCommand& command) {
  data::BuildOptions options = command.options;
  set_build_options(command.common, options);
  options.special = data::policy_from_name(command.special).value();
  options.special_asked = command.special_option->count() > 0;
  options.holdout = parse_share("--holdout", command.holdout);
  if (!command.part_size.empty()) options.part_bytes = parse_byte_size(command.part_size);
  const Task task = task_of_launch();
  options.process = task.process;
  options.processes = task.processes;
  return options;
}

/// Throws InputError for options that do not go together with --chat or its absence.
void check_chat_arguments(const BuildCommand& command) {
  const auto refuse = [](bool given, std::string_view option, std::string_view why) {
    if (given) fail_input("data", "{}: {}", option, why);
  };
  if (!command.chat) {
    refuse(command.targets_option->count() > 0, "--targets",
           "it is for chats; give --chat as well");
    refuse(!command.date.empty(), "--date", "it is for chats; give --chat as well");
    return;
  }
  refuse(command.tokenizer.empty(), "--chat",
         "the chat template stands beside a tokenizer; name the model with --tokenizer");
  refuse(command.special_option->count() > 0, "--special-tokens",
         "the chat template writes all special tokens; leave the option out");
  refuse(command.options.newlines_to_spaces, "--newlines-to-spaces",
         "a template decides on the lines of a chat; leave the option out");
  refuse(command.common.field->count() > 0, "--field",
         "chats are found by the names of their fields (longhaul docs data#chats)");
}

/// Returns the chat template beside the tokenizer and what it makes of chats.
data::ChatOptions chat_options(const BuildCommand& command,
                               const tokenizer::Tokenizer& tokenizer) {
  data::ChatOptions chat;
  chat.format =
      std::make_shared<chat::ChatFormat>(tokenizer.files().front().parent_path());
  for (const auto targets : {chat::Targets::Last, chat::Targets::All}) {
    if (command.targets == data::targets_name(targets)) chat.targets = targets;
  }
  if (!command.date.empty()) chat.day = chat::parse_day(command.date);
  return chat;
}

/// Returns a line of bad_records.jsonl as "a.jsonl:2 (byte 17)  invalid JSON: detail".
std::string describe_bad(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return line;
  std::string text = json.value("file", "");
  if (json.contains("line")) text += fmt::format(":{}", json.value("line", int64_t{0}));
  if (json.contains("row"))
    text += fmt::format(": row {}", json.value("row", int64_t{0}));
  if (json.contains("byte")) {
    text += fmt::format(" (byte {})", json.value("byte", int64_t{0}));
  }
  text += "  " + json.value("problem", "");
  const std::string detail = json.value("detail", "");
  return detail.empty() ? text : text + ": " + detail;
}

/// Returns the counts of requests to an object store so far; nothing if none was made.
std::optional<objects::ObjectCounts> counts_of_objects(const objects::Access& objects) {
  const objects::ObjectCounts counts = objects.store()->counts();
  return counts.requests == 0 ? std::nullopt : std::optional(counts);
}

void print_report(const data::BuildReport& report, const data::InspectOptions& shown,
                  const objects::OutputPlace& out, const objects::Access& objects) {
  const auto describe = [&](const fs::path& path) {
    return out.as_named(data::describe_data(path, shown).value().text);
  };
  if (report.stood_already) {
    fmt::print("{} {} (the same inputs, tokenizer and options); {}\n",
               out.as_named(report.train_path.string()),
               out.is_address() ? "was made before" : "is this very store already",
               out.is_address() ? "it is only sent" : "nothing was done");
  }
  fmt::print("{}", describe(report.train_path));
  if (report.validation_path) fmt::print("\n{}", describe(*report.validation_path));
  if (const auto counts = counts_of_objects(objects)) {
    fmt::print("\nobjects: {} read in {} requests, {} of them tried again\n",
               human_bytes(counts->read), grouped(counts->requests),
               grouped(counts->retries));
  }
  if (report.bad_examples.empty()) return;
  fmt::print("\nbroken records, the first {} of {}\n", report.bad_examples.size(),
             out.as_named((report.train_path / report.train.bad_records->name).string()));
  for (const std::string& line : report.bad_examples) {
    fmt::print("  {}\n", describe_bad(line));
  }
}

void print_json(const data::BuildReport& report, const data::InspectOptions& shown,
                const objects::OutputPlace& out, const objects::Access& objects) {
  OrderedJson json;
  json["stood_already"] = report.stood_already;
  json["train"] = data::describe_data(report.train_path, shown).value().json;
  if (report.validation_path) {
    json["validation"] = data::describe_data(*report.validation_path, shown).value().json;
  }
  if (const auto counts = counts_of_objects(objects)) {
    json["objects"] = {{"requests", counts->requests},
                       {"retries", counts->retries},
                       {"bytes_read", counts->read}};
  }
  fmt::print("{}\n", out.as_named(json_text(json)));
}

void run_build(const BuildCommand& command, const objects::Access& objects) {
  check_chat_arguments(command);
  data::BuildOptions options = build_options(command);
  options.inputs.objects = objects.store();
  const objects::OutputPlace out(
      command.common.out, objects,
      output_use({.replaces = options.force ? data::kStoreRecord : "",
                  .goes_on = true,
                  .processes = options.processes,
                  .beside = options.holdout > 0 ? data::holdout_path("").string() : ""}));
  options.out = out.path();
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!command.tokenizer.empty()) {
    tokenizer = tokenizer::Tokenizer::load(local_input(command.tokenizer, objects));
    tokenizer::refuse_moved_pieces(*tokenizer);
    if (command.chat) options.chat = chat_options(command, *tokenizer);
  }
  const system::SignalWatch signals;
  const StopObjectsAtSignal stop_objects(signals, objects);
  system::StagedProgress stages;
  if (options.process == 0) {
    if (tokenizer) std::ranges::for_each(tokenizer->warnings(), say_warning);
    options.progress = [&](const data::BuildProgress& now) {
      stages.update(std::string(now.stage), "bytes", static_cast<int64_t>(now.bytes),
                    static_cast<int64_t>(now.total_bytes));
    };
  }
  options.note = [&](const std::string& line) {
    fmt::print(stderr, "{}{}\n",
               options.processes > 1
                   ? fmt::format("process {} of {}: ", options.process, options.processes)
                   : "",
               line);
  };
  options.stop = [&] { return signals.raised() != 0; };
  const data::BuildReport report = data::build_store(tokenizer.get(), options);
  stages.finish();
  if (options.process != 0) return;
  const data::InspectOptions shown{command.seq_len, command.global_size, false,
                                   tokenizer.get()};
  if (command.common.json) {
    print_json(report, shown, out, objects);
  } else {
    print_report(report, shown, out, objects);
  }
  out.upload();
}

void add_inputs(CLI::App& verb, BuildCommand& command) {
  add_input_arguments(
      verb, command.common,
      "text files (*.txt *.md ..., one document each), JSON lines (*.jsonl *.json "
      "*.ndjson), CSV and TSV, any of them as .gz or .zst, Parquet, Arrow. A directory "
      "may hold data of one of these kinds, or be one that datasets wrote with "
      "save_to_disk. Patterns in quotes are expanded, and ** stands for any directories",
      "the field of a JSON line, or the column, that holds the text or the list of ids");
  auto* const tokenizer =
      verb.add_option("--tokenizer", command.tokenizer,
                      "a tokenizer.json, a SentencePiece .model, or a directory that "
                      "holds one");
  verb.add_option("--vocab-size", command.options.vocab_size,
                  "in place of a tokenizer, where the inputs hold ready token ids: a "
                  "number above all of them")
      ->excludes(tokenizer)
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
}

void add_chats(CLI::App& verb, BuildCommand& command) {
  verb.add_flag(
      "--chat", command.chat,
      "the records are chats, or pairs of a chosen and a rejected answer, which "
      "the chat template beside --tokenizer writes as text");
  command.targets_option =
      verb.add_option("--targets", command.targets,
                      "with --chat, what is learned: the assistant's turns, the last of "
                      "them, or all tokens; of pairs the answers");
  command.targets_option->check(CLI::IsMember({"assistant", "last", "all"}))
      ->capture_default_str();
  verb.add_option("--date", command.date,
                  "with --chat, the day that a template prints, such as 2026-11-30; by "
                  "default the day on which the build began");
}

void add_rules(CLI::App& verb, BuildCommand& command) {
  command.special_option =
      verb.add_option("--special-tokens", command.special,
                      "special tokens around each text: the tokenizer's own rule and EOS "
                      "after it, the tokenizer's own rule alone, BOS before, EOS after, "
                      "both, or none; ready token ids stay as they are");
  command.special_option
      ->check(CLI::IsMember({"tokenizer+eos", "tokenizer", "bos", "eos", "both", "none"}))
      ->capture_default_str();
  verb.add_option("--holdout", command.holdout,
                  "share of the documents for a validation store OUT-val, such as 1%")
      ->capture_default_str();
  verb.add_flag(
      "--drop-duplicates", command.options.drop_duplicates,
      "keep only the first of the documents with the same text; reads the inputs twice");
  verb.add_flag("--newlines-to-spaces", command.options.newlines_to_spaces,
                "make a space of each newline of a text before it is cut into tokens; "
                "use it to get the token counts of a program that does the same");
  add_bad_record_arguments(verb, command.common);
}

void add_running(CLI::App& verb, BuildCommand& command) {
  add_run_arguments(verb, command.common,
                    "memory for the build beside the tokenizer's, such as 8GB; by "
                    "default 2 GiB, or 128 MiB for each thread where that is more",
                    "an existing token store");
  verb.add_option(
      "--part-size", command.part_size,
      "stored bytes of input in a part, such as 256MB; a build that was killed repeats "
      "no more than this; by default 64 MiB, more for inputs above 256 GiB");
  auto* const seq_len =
      verb.add_option("--seq-len", command.seq_len,
                      "print how many sequences of this length an epoch has")
          ->check(CLI::PositiveNumber);
  verb.add_option("--global-size", command.global_size,
                  "with --seq-len: print how many steps an epoch has")
      ->needs(seq_len)
      ->check(CLI::PositiveNumber);
}

}  // namespace

void add_data_build(CLI::App& data, Outcome& outcome) {
  const auto command = std::make_shared<BuildCommand>();
  CLI::App* verb = data.add_subcommand("build", "Turns text into a token store");
  add_inputs(*verb, *command);
  verb->add_option("--out", command->common.out, "the directory to make for the store")
      ->required();
  add_chats(*verb, *command);
  add_rules(*verb, *command);
  add_running(*verb, *command);
  verb->footer(
      "After a kill or a stop, the same command goes on where the build was and ends "
      "with the same bytes.\n"
      "Several processes share the work; process 0 waits for the others:\n"
      "  srun -n 16 longhaul data build ...\n"
      "Examples for BERT instead of tokens: longhaul data build --bert --help\n"
      "Chats: longhaul data build chats.jsonl --chat --tokenizer models/Qwen3-8B --out "
      "data/chats\n"
      "Example: longhaul data build 'corpus/*.jsonl.gz' --tokenizer models/Llama-3-8B "
      "--out data/wiki --holdout 1% --seq-len 8192");
  verb->callback([command, &outcome] { run_build(*command, outcome.objects); });
}

}  // namespace longhaul::apps
