#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/inputs/data_arguments.h"
#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/store/build/split_store.h"
#include "longhaul/system/progress.h"

namespace longhaul::apps {
namespace {

struct SplitCommand {
  std::string store;
  std::string share;
  data::SplitOptions options;
  std::string out_train;
  std::string out_validation;
  bool json = false;
};

OrderedJson figures(const std::string& path, const data::StoreInfo& info) {
  return {{"path", path},
          {"documents", info.documents},
          {"tokens", info.tokens},
          {"selection", info.selection},
          {"fingerprint", info.fingerprint}};
}

void print_side(const char* title, const std::string& path, const data::StoreInfo& info) {
  fmt::print("{:<16}{}  {}, {}, {}\n", title, path, counted(info.documents, "document"),
             counted(info.tokens, "token"), info.selection);
}

void run_split(SplitCommand& command) {
  data::check_utf8_path(command.store);
  if (command.share.empty() == (command.options.documents == 0)) {
    fail_input("data", "give either --share or --documents, for example --share 1%");
  }
  data::SplitOptions& options = command.options;
  if (!command.share.empty()) {
    options.share = parse_share("--share", command.share);
    if (options.share <= 0.0) {
      fail_input("data",
                 "--share {} leaves the validation store empty; give a larger share",
                 command.share);
    }
  }
  options.out_train = command.out_train;
  options.out_validation = command.out_validation;
  system::Progress progress("data split", "documents");
  options.progress = progress.updates();
  const data::SplitReport report = data::split_store(command.store, options);
  progress.finish();
  if (command.json) {
    fmt::print("{}\n",
               json_text(OrderedJson{
                   {"train", figures(command.out_train, report.train)},
                   {"validation", figures(command.out_validation, report.validation)}}));
    return;
  }
  print_side("train", command.out_train, report.train);
  print_side("validation", command.out_validation, report.validation);
}

}  // namespace

void add_data_split(CLI::App& data, Outcome& outcome) {
  const auto command = std::make_shared<SplitCommand>();
  CLI::App* verb = data.add_subcommand(
      "split", "Cuts a token store into training and validation by document");
  verb->add_option("store", command->store, "a token store")->required();
  verb->add_option("--out-train", command->out_train, "a store to make")->required();
  verb->add_option("--out-validation", command->out_validation, "a store to make")
      ->required();
  verb->add_option("--share", command->share,
                   "share of the documents for validation, such as 1%");
  verb->add_option("--documents", command->options.documents,
                   "number of documents for validation, in place of --share")
      ->check(CLI::PositiveNumber);
  verb->add_option("--seed", command->options.seed,
                   "seed that chooses the documents for validation")
      ->capture_default_str();
  verb->add_option("--threads", command->options.threads,
                   "number of threads; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--force", command->options.force,
                 "replace existing token stores at --out-train and --out-validation");
  verb->add_flag("--json", command->json, "print the figures as one JSON object");
  verb->footer(
      "Nothing is tokenized again. Equal documents go to the same side.\n"
      "Example: longhaul data split data/wiki --out-train data/train --out-validation "
      "data/val --share 1%");
  verb->callback([command, &outcome] {
    command->store = local_input(command->store, outcome.objects);
    run_split(*command);
  });
}

}  // namespace longhaul::apps
