#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "apps/objects/local_input.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/examine/inspect.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/model_config.h"
#include "longhaul/families/parameter_names.h"
#include "longhaul/run/files.h"

namespace longhaul::apps {
namespace {

struct InspectCall {
  std::string path;
  bool json = false;
  bool names = false;
};

/// Returns the model of a Hugging Face directory, a config.json, a checkpoint, a run,
/// which need not have a checkpoint yet, or a run's TOML file.
ModelConfig model_of(const fs::path& path) {
  fs::path settings = path;
  if (fs::is_directory(path)) {
    if (fs::exists(path / "config.json")) return load_model_config(path);
    settings /= run::kConfigFile;
    const bool begun =
        checkpoint::find_latest(checkpoint::checkpoints_dir_of(path)).has_value();
    if (begun || !fs::exists(settings)) {
      return load_model_config(
          checkpoint::model_files_dir(checkpoint::resolve_model_source(path)));
    }
  }
  if (settings.extension() != ".toml") return load_model_config(settings);
  const RunConfig config = load_run_config(settings).config;
  return load_run_model(config);
}

/// Prints every parameter, and the tensor of Hugging Face's files that it is or lies in.
void print_names(const InspectCall& options) {
  const ModelDescription model = model_of(options.path).description;
  OrderedJson list = OrderedJson::array();
  for (const ParameterDescription& p : model.parameters()) {
    const std::string together = together_name(p);
    if (options.json) {
      list.push_back({{"name", p.name}, {"file_name", file_name(p)}, {"shape", p.shape}});
      if (!together.empty()) list.back()["together_name"] = together;
      continue;
    }
    std::string line = fmt::format("{} {}", p.name, format::describe_shape(p.shape));
    if (file_name(p) != p.name) line += ", in Hugging Face's files " + file_name(p);
    if (!together.empty()) line += ", in files with all experts in one " + together;
    fmt::print("{}\n", line);
  }
  if (options.json) fmt::print("{}\n", json_text(list, 2));
}

/// Describes data; returns nothing if the path holds no data that training takes.
std::optional<data::DataDescription> data_at(const std::string& path) {
  if (fs::is_directory(path)) {
    auto data = data::describe_data(path);
    if (!data) data = data::describe_bert(path);
    if (data) return data;
  }
  try {
    return data::describe_ready_ids(path);
  } catch (const InputError&) {
    return std::nullopt;  // the file's name does not tell ids from other JSON or Parquet
  }
}

int run_inspect(const InspectCall& options, const objects::Access& objects) {
  const auto print = [&](const std::string& text) {
    fmt::print("{}", objects.with_addresses(text));
  };
  if (options.names) {
    print_names(options);
    return 0;
  }
  if (const auto data = data_at(options.path)) {
    print(options.json ? json_text(data->json, 2) + "\n" : data->text);
    return data->complete ? 0 : 78;
  }
  const checkpoint::Inspection result = checkpoint::inspect_path(options.path);
  if (options.json) {
    print(json_text(result.json, 2) + "\n");
  } else {
    for (const std::string& line : result.lines) print(line + "\n");
  }
  return result.complete ? 0 : 78;
}

}  // namespace

void add_inspect(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<InspectCall>();
  CLI::App* verb = program.add_subcommand(
      "inspect",
      "Says what a checkpoint, run, token store, BERT data, ready ids, model or "
      "tokenizer directory, safetensors file or tokenizer.json is, and whether it is "
      "complete");
  verb->add_option(
          "path", options->path,
          "a file or directory of one of these kinds, or its address (s3://BUCKET/KEY)")
      ->required();
  verb->add_flag("--json", options->json, "machine-readable");
  verb->add_flag(
      "--names", options->names,
      "list the parameters of a model's directory, config.json, checkpoint or run: each "
      "name, and the names of the tensors in Hugging Face's files that hold the "
      "parameter; the patterns of optimizer.groups match any of them");
  verb->footer(
      "Ends with 78 when something is missing.\n"
      "Example: longhaul inspect models/Llama-3-8B");
  verb->callback([options, &outcome] {
    const LocalCheckpoint named(options->path, outcome.objects);
    options->path = named.path();
    outcome.exit_code = run_inspect(*options, outcome.objects);
  });
}

}  // namespace longhaul::apps
