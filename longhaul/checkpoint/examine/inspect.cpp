#include "longhaul/checkpoint/examine/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/format/refused_forms.h"
#include "longhaul/format/safetensors.h"
#include "longhaul/format/side_files.h"
#include "longhaul/run/files.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::checkpoint {
namespace {

void problem(Inspection& result, const std::string& text) {
  result.complete = false;
  result.lines.push_back("  PROBLEM: " + text);
  result.json["problems"].push_back(text);
}

// Adds a line such as "weights: 291 tensors, 8,030,261,248 parameters, BF16, 16.1 GB".
void add_tensors(Inspection& result, const std::string& title,
                 const std::vector<format::TensorSlice>& tensors) {
  int64_t parameters = 0;
  uint64_t bytes = 0;
  std::map<std::string, int64_t> dtypes;
  for (const format::TensorSlice& tensor : tensors) {
    parameters += tensor.num_elements();
    bytes += bytes_in(tensor);
    ++dtypes[std::string(format::dtype_name(tensor.dtype))];
  }
  std::string names;
  for (const auto& [name, count] : dtypes) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    if (dtypes.size() > 1) names += fmt::format(" ({})", counted(count, "tensor"));
  }
  result.lines.push_back(
      fmt::format("  {}: {}, {}, {}, {}", title, counted(std::ssize(tensors), "tensor"),
                  counted(parameters, "parameter"), names, human_bytes(bytes)));
  result.json[title] = {{"tensors", tensors.size()},
                        {"parameters", parameters},
                        {"dtypes", dtypes},
                        {"bytes", bytes}};
}

/// Adds the config, and returns it where it can be read.
std::optional<ModelConfig> add_config(Inspection& result, const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) {
    problem(result, "config.json is missing");
    return std::nullopt;
  }
  try {
    ModelConfig config = load_model_config(path);
    const ModelDescription& model = config.description;
    result.lines.push_back(fmt::format(
        "  config: {}, {}, hidden {}, heads {}/{}, vocabulary {}, context {}{}",
        config.model_type, counted(model.num_blocks(), "layer"), model.features(),
        config.network.query_heads, config.network.key_heads, config.vocab_size,
        config.network.max_positions, model.tied ? ", tied head" : ""));
    if (model.num_active_parameters() < model.num_parameters()) {
      result.lines.push_back("  experts: " + model.parameters_text());
    }
    const std::string kinds = families::layer_kinds(config.network);
    if (!kinds.empty()) result.lines.push_back("  attention: " + kinds);
    result.json["config"] = {
        {"model_type", config.model_type},
        {"parameters", model.num_parameters()},
        {"active_parameters", model.num_active_parameters()},
        {"parameters_without_embedding", model.num_parameters_without_embedding()},
        {"num_hidden_layers", model.num_blocks()},
        {"hidden_size", model.features()},
        {"layer_kinds", kinds},
        {"vocab_size", config.vocab_size}};
    return config;
  } catch (const Error& failure) {
    problem(result, failure.what());
    return std::nullopt;
  }
}

/// Adds the side files except the config to the JSON, and returns their names in words.
std::string add_side_files(Inspection& result, std::vector<std::string> names) {
  std::erase(names, "config.json");
  result.json["files"] = names;
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_tokenizer_files(Inspection& result, const fs::path& dir) {
  const std::vector<std::string> found = format::hf_side_files(dir);
  const std::string names = add_side_files(result, found);
  result.lines.push_back("  files: " +
                         (names.empty() ? "none besides the config" : names));
  if (!format::has_tokenizer(found))
    result.lines.emplace_back("  note: there is no tokenizer, so text cannot be read");
}

/// Adds the warnings of a tokenizer whose files are whole, or why it cannot be used;
/// `path` is a directory or a file. A model counts as complete even if this program does
/// not read its tokenizer.
void add_tokenizer(Inspection& result, const fs::path& path) {
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

/// Adds how far the run was in the data, as the trainer's state.json says. What
/// state.json lacks is left out.
void add_data(Inspection& result, const Json& state) {
  const auto chain = state.find("batch_hash");
  if (chain == state.end() || !chain->is_string()) return;
  const int64_t tokens = state.value("tokens", int64_t{0});
  std::string line = fmt::format("  data: {} tokens, chain over all batches {}",
                                 grouped(tokens), chain->get<std::string>());
  Json sources = Json::array();
  for (const Json& source : state.value("sources", Json::array())) {
    line += fmt::format("\n    {}: {}, {}", source.value("name", ""),
                        counted(source.value("tokens", int64_t{0}), "token"),
                        counted(source.value("sequences", int64_t{0}), "sequence"));
    sources.push_back(source);
  }
  result.lines.push_back(line);
  result.json["data"] = {
      {"tokens", tokens}, {"batch_hash", *chain}, {"sources", std::move(sources)}};
}

Inspection inspect_checkpoint(const fs::path& path) {
  Inspection result;
  result.kind = "checkpoint";
  try {
    const CheckpointReader reader = CheckpointReader::open(path);
    const Manifest& manifest = reader.manifest();
    result.lines.push_back(
        fmt::format("checkpoint of step {}: complete, {} in {}", manifest.step,
                    human_bytes(manifest.total_bytes()),
                    counted(std::ssize(manifest.files()) + 1, "file")));
    result.lines.push_back(fmt::format(
        "  saved {} by attempt {}, {}, build {}", manifest.saved_at, manifest.attempt,
        counted(std::ssize(manifest.ranks), "rank"), manifest.build));
    if (!manifest.run.empty()) result.lines.push_back("  of run " + manifest.run);
    result.json["run"] = manifest.run;
    result.json["step"] = manifest.step;
    result.json["attempt"] = manifest.attempt;
    result.json["saved_at"] = manifest.saved_at;
    result.json["bytes"] = manifest.total_bytes();
    result.json["ranks"] = manifest.ranks.size();
    result.json["layout"] = manifest.layout;
    try {
      add_data(result, reader.state());
    } catch (const Json::exception& error) {
      problem(result, fmt::format("state.json: {}", words_of(error)));
    }
    for (const char* kind : {kWeight, kExpAvg, kExpAvgSq}) {
      const auto tensors = reader.tensors(kind);
      if (!tensors.empty()) add_tensors(result, kind, tensors);
    }
    if (!manifest.hf.empty()) {
      add_config(result, reader.hf_dir() / "config.json");
      add_tokenizer_files(result, reader.hf_dir());
    }
    result.lines.emplace_back(
        "  block hashes: not checked; `longhaul verify` checks them");
  } catch (const InputError& error) {
    result.lines.emplace_back("checkpoint: NOT complete");
    problem(result, error.what());
  }
  return result;
}

Inspection inspect_run(const fs::path& path, const fs::path& dir) {
  Inspection result;
  result.kind = "run";
  const std::vector<CheckpointEntry> entries = list_checkpoints(dir);
  const auto latest = find_latest(dir);
  result.lines.push_back(fmt::format(
      "run {}: {}, {}", path.string(), counted(std::ssize(entries), "checkpoint"),
      latest ? fmt::format("newest valid: step {}", latest->step) : "none valid"));
  Json list = Json::array();
  for (const CheckpointEntry& entry : entries) {
    list.push_back({{"step", entry.step}, {"valid", entry.valid}, {"run", entry.run}});
    if (!entry.valid) problem(result, entry.problem);
  }
  result.json["checkpoints"] = list;
  if (const auto missing = missing_newest(path, dir)) {
    problem(result, fmt::format("{}: the run committed it, and it is not there any more",
                                missing->string()));
  }
  for (const fs::path& aside : list_set_aside(dir)) {
    result.lines.push_back("  set aside: " + aside.filename().string());
    result.json["set_aside"].push_back(aside.filename().string());
  }
  if (latest) {
    Inspection newest = inspect_checkpoint(latest->path);
    result.lines.insert(result.lines.end(), newest.lines.begin(), newest.lines.end());
    result.complete = result.complete && newest.complete;
    result.json["latest"] = newest.json;
  } else {
    result.complete = false;
    auto foreign = find_foreign(dir);
    if (!foreign) foreign = find_foreign(path);
    if (foreign) problem(result, foreign_advice(*foreign));
  }
  return result;
}

// Adds the shards, and returns the weights where all shards are there. Reads headers
// only.
SharedSource add_weights(Inspection& result, const fs::path& path) {
  const std::vector<format::HfShard> shards = format::list_hf_shards(path);
  uint64_t bytes = 0;
  size_t present = 0;
  Json list = Json::array();
  for (const format::HfShard& shard : shards) {
    bytes += shard.size;
    present += shard.present ? 1U : 0U;
    list.push_back(
        {{"name", shard.name}, {"present", shard.present}, {"size", shard.size}});
  }
  result.json["shards"] = list;
  result.lines.push_back(fmt::format("  shards: {} of {} present, {}", present,
                                     shards.size(), human_bytes(bytes)));
  if (shards.empty()) problem(result, "there are no safetensors weights");
  for (const format::HfShard& shard : shards) {
    if (!shard.present) problem(result, "missing: " + shard.described);
  }
  if (shards.empty() || present < shards.size()) return nullptr;
  SharedSource source = WeightsSource::open(path);
  add_tensors(result, "weights", source->tensors());
  for (const std::string& line : source->ignored()) {
    result.lines.push_back("  ignored: " + line);
  }
  result.lines.emplace_back(
      "  values: not read; train, eval, generate and export refuse NaN and infinity");
  return source;
}

// Adds a note if the embeddings are tied and the files hold an output projection that
// differs from the embedding. Needs complete weights.
void add_tied_head(Inspection& result, const WeightsSource& source,
                   const ModelConfig& config) {
  try {
    const auto difference = tied_head_difference(source, config);
    if (!difference) return;
    result.lines.push_back(fmt::format(
        "  note: tie_word_embeddings is true, but {}: transformers does not tie such a "
        "model, and train, eval and generate refuse it",
        *difference));
    result.json["untied_head"] = *difference;
  } catch (const InputError& error) {
    problem(result, error.what());
  }
}

Inspection inspect_hf(const fs::path& path) {
  Inspection result;
  result.kind = "hf_directory";
  SharedSource source;
  try {
    source = add_weights(result, path);
  } catch (const InputError& error) {
    problem(result, error.what());
  }
  const fs::path config_file = path / "config.json";
  const auto config = add_config(result, config_file);
  if (source && config) {
    const SharedSource parameters = as_parameters(source, config->description);
    for (const std::string& line : tensor_problems(parameters, config->description)) {
      problem(result, line);
    }
  }
  const std::vector<std::string> beside = problems_beside(path);
  for (const std::string& line : beside) {
    if (!line.starts_with(config_file.string() + ":")) problem(result, line);
  }
  if (result.complete) add_tied_head(result, *source, *config);
  add_tokenizer_files(result, path);
  // If the tokenizer's files are damaged, they are listed as problems already.
  if (beside.empty() && format::has_tokenizer(format::hf_side_files(path)))
    add_tokenizer(result, path);
  result.lines.insert(result.lines.begin(),
                      fmt::format("Hugging Face model {}: {}", path.string(),
                                  result.complete ? "complete" : "NOT complete"));
  return result;
}

bool is_tokenizer(const Json& json) {
  return json.is_object() && json.contains("model") && json["model"].is_object() &&
         json["model"].contains("vocab");
}

// Adds a line such as "tokenizer my/tokenizer.json: BPE, 128,000 tokens, 280,147 merges,
// 256 added".
void add_vocabulary(Inspection& result, const fs::path& path, const Json& json) {
  const Json& model = json["model"];
  const std::string type = model.contains("type") && model["type"].is_string()
                               ? model["type"].get<std::string>()
                               : "of unnamed type";
  const size_t added = json.contains("added_tokens") ? json["added_tokens"].size() : 0;
  const size_t merges = model.contains("merges") ? model["merges"].size() : 0;
  result.lines.push_back(fmt::format("tokenizer {}: {}, {}, {}, {} added", path.string(),
                                     type, counted(std::ssize(model["vocab"]), "token"),
                                     counted(static_cast<int64_t>(merges), "merge"),
                                     added));
  result.json["vocabulary"] = model["vocab"].size();
  result.json["merges"] = merges;
  result.json["added_tokens"] = added;
}

/// Says which command takes a file that `inspect` does not know, by the file's name.
std::string advice_for_file(const fs::path& path) {
  if (const auto foreign = find_foreign(path)) return foreign_advice(*foreign);
  const std::string kind = path.extension().string();
  const std::string name = path.filename().string();
  const auto is_one_of = [&](std::initializer_list<const char*> kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  if (kind == ".toml")
    return "`longhaul config " + path.string() + "` checks a run's file";
  if (name == "config.json" || name == "model.safetensors.index.json") {
    return "give the directory that it is in";
  }
  if (is_one_of({".pt", ".pth", ".bin", ".ckpt", ".distcp"})) {
    return "`longhaul import` reads PyTorch's checkpoints";
  }
  if (is_one_of(
          {".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst"})) {
    return "`longhaul data build` makes a token store of text";
  }
  return "give a checkpoint, a run, a token store or a model's directory";
}

Inspection inspect_file(const fs::path& path) {
  Inspection result;
  if (path.extension() == ".safetensors") {
    result.kind = "safetensors";
    const format::SafetensorsFile file = format::SafetensorsFile::open(path);
    result.lines.push_back(fmt::format("safetensors file {}: complete, {}", path.string(),
                                       human_bytes(file.size())));
    std::vector<format::TensorSlice> tensors;
    for (const format::SafetensorsEntry& entry : file.header().entries) {
      tensors.push_back(format::TensorSlice::whole(entry.name, entry.shape, entry.dtype));
    }
    add_tensors(result, "tensors", tensors);
    return result;
  }
  const Json json = path.extension() == ".json" ? read_json(path) : Json();
  if (is_tokenizer(json)) {
    result.kind = "tokenizer";
    add_vocabulary(result, path, json);
    add_tokenizer(result, path);
    return result;
  }
  if (const std::string other = format::other_form(path); !other.empty()) {
    throw InputError("inspect", path.string() + ": " + other);
  }
  throw InputError("inspect",
                   path.string() +
                       ": the file is neither a safetensors file nor a tokenizer.json; " +
                       advice_for_file(path));
}

/// Inspects a directory with a tokenizer alone, such as `data train-tokenizer` makes.
Inspection inspect_tokenizer_directory(const fs::path& path) {
  Inspection result;
  result.kind = "tokenizer";
  const fs::path file = tokenizer::find_tokenizer_file(path).value();
  const std::vector<std::string> problems = problems_beside(path);
  Json json;
  if (problems.empty() && file.extension() == ".json") json = read_json(file);
  if (is_tokenizer(json)) {
    add_vocabulary(result, file, json);
  } else {
    result.lines.push_back(fmt::format("tokenizer {}", file.string()));
  }
  for (const std::string& line : problems) problem(result, line);
  result.lines.push_back("  a tokenizer's directory, without a model; files: " +
                         add_side_files(result, format::hf_side_files(path)));
  if (problems.empty()) add_tokenizer(result, path);
  return result;
}

Inspection inspect_directory(const fs::path& path) {
  const fs::path checkpoints = checkpoints_dir_of(path);
  if (fs::exists(path / run::kManifestFile)) return inspect_checkpoint(path);
  if (!list_checkpoints(checkpoints).empty() || fs::exists(path / run::kConfigFile)) {
    return inspect_run(path, checkpoints);
  }
  if (!list_checkpoints(path).empty()) return inspect_run(path, path);
  const auto foreign = find_foreign(path);
  if (foreign && format::list_hf_shards(path).empty()) {
    throw InputError("inspect", foreign_advice(*foreign));
  }
  if (path.filename().string().starts_with("step_")) return inspect_checkpoint(path);
  // inspect_hf reports an index that is damaged, so the index is not read before it.
  if (fs::exists(path / "config.json") || !format::list_hf_shards(path).empty()) {
    Inspection result = inspect_hf(path);
    if (foreign) result.lines.push_back("  note: " + foreign_advice(*foreign));
    return result;
  }
  if (tokenizer::find_tokenizer_file(path)) return inspect_tokenizer_directory(path);
  if (const std::string other = format::other_form(path); !other.empty()) {
    throw InputError("inspect", path.string() + ": " + other);
  }
  fail_input("inspect",
             "{}: not a checkpoint, a run, a token store, ready ids or a Hugging Face "
             "directory (a model's or a tokenizer's)",
             path.string());
}

}  // namespace

Inspection inspect_path(const fs::path& path) {
  if (!is_seen(path)) throw InputError("inspect", missing_path(path));
  Inspection result =
      fs::is_directory(path) ? inspect_directory(path) : inspect_file(path);
  result.json["kind"] = result.kind;
  result.json["path"] = path.string();
  result.json["complete"] = result.complete;
  return result;
}

}  // namespace longhaul::checkpoint
