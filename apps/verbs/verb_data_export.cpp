#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/store/export_store.h"
#include "longhaul/system/progress.h"

namespace longhaul::apps {
namespace {

struct ExportCommand {
  std::string store;
  std::string out;
  data::StoreExportOptions options;
  std::string tail = "drop";
  std::string shard_size = "500MB";
  bool json = false;
};

void run_export(const ExportCommand& command) {
  data::check_utf8_path(command.store);
  data::StoreExportOptions options = command.options;
  options.keep_tail = command.tail == "keep";
  options.file_bytes = parse_byte_size(command.shard_size);
  system::Progress progress("data export", "tokens");
  options.progress = progress.updates();
  const data::StoreExportReport report =
      data::export_store(command.store, command.out, options);
  progress.finish();
  if (command.json) {
    fmt::print("{}\n", json_text(OrderedJson{{"path", command.out},
                                             {"rows", report.rows},
                                             {"seq_len", options.seq_len},
                                             {"tokens_left", report.tokens_left},
                                             {"files", report.files},
                                             {"bytes", report.bytes}}));
    return;
  }
  fmt::print("{}: {} of {} tokens in {}, {}; {} at the end make no whole row{}\n",
             command.out, counted(report.rows, "row"), options.seq_len,
             counted(static_cast<int64_t>(report.files), "file"),
             human_bytes(report.bytes), counted(report.tokens_left, "token"),
             report.tokens_left > 0 ? "and were left out (--tail keep writes them)" : "");
}

}  // namespace

void add_data_export(CLI::App& data, Outcome& outcome) {
  const auto command = std::make_shared<ExportCommand>();
  CLI::App* verb = data.add_subcommand(
      "export", "Writes a token store as a directory for datasets.load_from_disk");
  verb->add_option("store", command->store, "a token store")->required();
  verb->add_option("--out", command->out, "the directory to make")->required();
  verb->add_option("--seq-len", command->options.seq_len, "tokens in a row")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("--tail", command->tail,
                   "tokens at the end that make no whole row: drop, or keep as a shorter "
                   "last row")
      ->check(CLI::IsMember({"drop", "keep"}))
      ->capture_default_str();
  verb->add_option("--shard-size", command->shard_size, "largest size of a file, about")
      ->capture_default_str();
  verb->add_option("--threads", command->options.threads,
                   "number of files written at a time; 0: one for each core")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--force", command->options.force,
                 "replace an existing directory of this kind at --out");
  verb->add_flag("--json", command->json, "print the figures as one JSON object");
  verb->footer(
      "Columns: input_ids (int32), attention_mask (int8), labels (int64, -100 where a "
      "token is no target).\n"
      "Example: longhaul data export data/wiki --out data/wiki-hf --seq-len 8192");
  verb->callback([command, &outcome] {
    command->store = local_input(command->store, outcome.objects);
    run_export(*command);
  });
}

}  // namespace longhaul::apps
