#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/inspect.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct InspectCall {
  std::string path;
  bool json = false;
};

/// What text becomes with the tokenizer of a model's or a tokenizer's directory.
void add_tokenizer(const fs::path& path, checkpoint::Inspection& result) {
  if (result.kind != "hf_directory" && result.kind != "tokenizer") return;
  if (fs::is_directory(path) && !tokenizer::find_tokenizer_file(path)) return;
  try {
    const auto loaded = tokenizer::Tokenizer::load(path);
    result.json["tokenizer_warnings"] = loaded->warnings();
    for (const std::string& warning : loaded->warnings()) {
      result.lines.push_back("  warning: " + warning);
    }
  } catch (const InputError& problem) {
    result.json["tokenizer_problem"] = problem.what();
    result.lines.push_back(
        fmt::format("  note: text cannot be read: {}", problem.what()));
  }
}

int run_inspect(const InspectCall& options) {
  if (fs::is_directory(options.path)) {
    auto data = data::describe_data(options.path);
    if (!data) data = data::describe_bert(options.path);
    if (data) {
      fmt::print("{}", options.json ? data->json.dump(2) + "\n" : data->text);
      return data->complete ? 0 : 78;
    }
  }
  checkpoint::Inspection result = checkpoint::inspect_path(options.path);
  add_tokenizer(options.path, result);
  if (options.json) {
    fmt::print("{}\n", result.json.dump(2));
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
