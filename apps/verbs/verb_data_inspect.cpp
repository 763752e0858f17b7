#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <system_error>

#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

struct InspectCommand {
  std::string path;
  std::string config;
  std::string field = data::kIdsField;
  int64_t seq_len = 0;
  int64_t global_size = 0;
  int64_t show = 0;
  bool json = false;
};

/// Refuses an option that has no use for the kind of data that was found.
void check_asked(const InspectCommand& command, const data::InspectOptions& options,
                 const data::DataDescription& data) {
  const std::string kind = data.json["kind"].get<std::string>();
  if (kind != "saved_dataset" && kind != "ready_ids") {
    data::refuse_field(command.path, command.field, "it");
  }
  if (command.show > 0 && kind != "token_store") {
    fail_input("data", "--show {}: {} is no token store", command.show, command.path);
  }
  if (kind == "bert_examples") {
    if (!data.complete || options.seq_len == 0) return;
    const auto own = data.json["seq_len"].get<int64_t>();
    data::check_example_length(command.path, own, options.seq_len);
  } else if (options.seq_len == 0 && options.global_size > 0) {
    fail_input("data",
               "--global-size {}: steps are counted in sequences; give --seq-len or "
               "--config as well",
               options.global_size);
  }
}

[[noreturn]] void refuse_kind(const std::string& path, const std::string& reason) {
  fail_input("data",
             "{}: neither a token store, nor BERT examples, nor a directory that "
             "datasets wrote with save_to_disk, nor JSON lines, Parquet or Arrow of "
             "ready ids{}; 'longhaul inspect' knows more kinds",
             path, reason);
}

/// Describes files of token ids, which need no tokenizer. Throws InputError, with the
/// reason, if the path holds none.
data::DataDescription ready_ids(const std::string& path,
                                const data::InspectOptions& options) {
  try {
    if (auto found = data::describe_ready_ids(path, options)) return std::move(*found);
  } catch (const InputError& error) {
    refuse_kind(path, fmt::format(" ({})", error.what()));
  }
  refuse_kind(path, "");
}

int run_inspect(const InspectCommand& command, const objects::Access& objects) {
  data::check_utf8_path(command.path);
  if (std::error_code error; !fs::exists(command.path, error)) {
    throw InputError("data", missing_path(command.path));
  }
  data::InspectOptions options{command.seq_len, command.global_size, true};
  options.field = command.field;
  options.show = command.show;
  options.colour = !command.json && system::wants_colour(STDOUT_FILENO);
  if (!command.config.empty()) {
    const RunConfig config = load_run_config(command.config, {}).config;
    if (options.seq_len == 0) options.seq_len = config.data.seq_len;
    if (options.global_size == 0) options.global_size = config.batch.global_size;
  }
  auto data = data::describe_data(command.path, options);
  if (!data) data = data::describe_bert(command.path, options);
  if (!data) data = ready_ids(command.path, options);
  check_asked(command, options, *data);
  fmt::print("{}", objects.with_addresses(command.json ? json_text(data->json, 2) + "\n"
                                                       : data->text));
  return data->complete ? 0 : 78;
}

}  // namespace

void add_data_inspect(CLI::App& data, Outcome& outcome) {
  const auto command = std::make_shared<InspectCommand>();
  CLI::App* verb = data.add_subcommand(
      "inspect", "Shows tokens, documents, their lengths and the size of an epoch");
  verb->add_option(
          "path", command->path,
          "a token store, BERT examples, or what is read through: a directory that "
          "datasets wrote with save_to_disk, and JSON lines, Parquet or Arrow of ready "
          "ids, a file or a directory")
      ->required();
  verb->add_option("--config", command->config,
                   "a run's TOML file, which gives data.seq_len and batch.global_size");
  verb->add_option("--seq-len", command->seq_len,
                   "tokens in a sequence: prints how many sequences an epoch has")
      ->check(CLI::PositiveNumber);
  verb->add_option("--global-size", command->global_size,
                   "sequences in a step: prints how many steps an epoch has")
      ->check(CLI::PositiveNumber);
  verb->add_option("--field", command->field,
                   "the column of the token ids, or the field of JSON lines")
      ->capture_default_str();
  verb->add_option("--show", command->show,
                   "print this many documents of a token store, with what is a target in "
                   "colour on a terminal, else between [[ and ]]")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", command->json, "machine-readable");
  verb->footer(
      "Ends with 78 when something is missing or damaged.\n"
      "Example: longhaul data inspect data/wiki --config run.toml\n"
      "What is learned of chats: longhaul data inspect data/chats --show 3");
  verb->callback([command, &outcome] {
    command->path = local_input(command->path, outcome.objects);
    outcome.exit_code = run_inspect(*command, outcome.objects);
  });
}

}  // namespace longhaul::apps
