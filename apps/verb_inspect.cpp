#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/verbs.h"
#include "longhaul/checkpoint/inspect.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/store/inspect_store.h"

namespace longhaul::apps {
namespace {

struct InspectCall {
  std::string path;
  bool json = false;
};

int run_inspect(const InspectCall& options) {
  if (fs::is_directory(options.path)) {
    auto data = data::describe_data(options.path);
    if (!data) data = data::describe_bert(options.path);
    if (data) {
      fmt::print("{}", options.json ? json_text(data->json, 2) + "\n" : data->text);
      return data->complete ? 0 : 78;
    }
  }
  const checkpoint::Inspection result = checkpoint::inspect_path(options.path);
  if (options.json) {
    fmt::print("{}\n", json_text(result.json, 2));
  } else {
    for (const std::string& line : result.lines) fmt::print("{}\n", line);
  }
  return result.complete ? 0 : 78;
}

}  // namespace

void add_inspect(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<InspectCall>();
  CLI::App* verb =
      program.add_subcommand("inspect",
                             "What a checkpoint, run, token store, BERT data, model "
                             "or tokenizer directory, safetensors file or "
                             "tokenizer.json is, and whether it is complete");
  verb->add_option("path", options->path, "any of these")->required();
  verb->add_flag("--json", options->json, "machine-readable");
  verb->footer(
      "Ends with 78 when something is missing.\n"
      "Example: longhaul inspect models/Llama-3-8B");
  verb->callback([options, &outcome] { outcome.exit_code = run_inspect(*options); });
}

}  // namespace longhaul::apps
