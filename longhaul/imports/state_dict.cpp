#include <fmt/format.h>

#include <set>

#include "longhaul/base/error.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/imports/foreign_model.h"
#include "longhaul/imports/foreign_names.h"
#include "longhaul/imports/numbered_optimizer.h"

namespace longhaul::imports {
namespace {

constexpr const char* kBinIndex = "pytorch_model.bin.index.json";
constexpr const char* kOptimizerKeys[] = {"optimizer", "optimizer_state_dict", "optim"};

bool is_meta_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("consolidated.") && name.ends_with(".pth");
}

[[noreturn]] void refuse_meta(const fs::path& path) {
  fail_input(
      "import",
      "{}: weights in Meta's own form (consolidated.*.pth), whose names and order of "
      "heads differ; take the Hugging Face files of the same model (they are published "
      "beside it, or transformers' convert_llama_weights_to_hf.py makes them)",
      path.string());
}

// Returns the files with weights of a directory; empty if it has none of this kind.
std::vector<fs::path> files_of(const fs::path& dir, std::string& what) {
  if (fs::exists(dir / kBinIndex)) {
    const format::HfIndex index = format::HfIndex::read(dir / kBinIndex);
    std::set<fs::path> paths;
    for (const auto& [tensor, name] : index.weight_map) {
      paths.insert(join_inside(dir, name, "import"));
    }
    for (const fs::path& path : paths) {
      if (!fs::exists(path)) {
        fail_input("import", "{}: missing, but {} names it", path.string(), kBinIndex);
      }
    }
    what = fmt::format("PyTorch state dict in {} files", paths.size());
    return {paths.begin(), paths.end()};
  }
  what = "PyTorch state dict";
  if (fs::exists(dir / "pytorch_model.bin")) return {dir / "pytorch_model.bin"};
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (is_meta_file(entry.path())) refuse_meta(entry.path());
  }
  return {};
}

// Notes the keys beside the model's that say what else the file holds.
void note_others(ForeignModel& model, const ForeignState& state) {
  const PickleTree& tree = state.tree();
  if (!tree.is(state.root(), PickleKind::Dict)) return;
  for (const char* key : kOptimizerKeys) {
    if (tree.find(state.root(), key)) model.has_optimizer = true;
  }
  for (const char* key : {"scheduler", "lr_scheduler"}) {
    if (tree.find(state.root(), key)) {
      model.notes.push_back(
          fmt::format("'{}' is not imported: [schedule] is a function of the step", key));
    }
  }
  for (const char* key : {"step", "total_steps", "global_step"}) {
    const auto value = tree.find(state.root(), key);
    if (value && tree.as_int(*value)) model.step = tree.as_int(*value);
  }
}

void open_file(ForeignModel& model, const fs::path& path, NamedTensors& tensors) {
  const ForeignState state = ForeignState::open(*model.files, path);
  std::string found_at;
  const auto dict = find_state_dict(state, path.string(), &found_at);
  if (!found_at.empty()) model.what += fmt::format(" (under '{}')", found_at);
  std::vector<std::string> others;
  NamedTensors found = state.tensors(dict, path.string(), &others);
  for (const std::string& name : others) {
    model.ignored.push_back(fmt::format("'{:.80}' (no tensor)", name));
  }
  if (dict != state.root()) note_others(model, state);
  tensors.insert(tensors.end(), std::make_move_iterator(found.begin()),
                 std::make_move_iterator(found.end()));
}

/// Returns the tensors that an optimizer numbers, without those that were skipped.
NamedTensors numbered_parameters(const ForeignModel& model, const NamedTensors& tensors) {
  const std::string& prefix = model.config.model->description.optional_prefix;
  NamedTensors found;
  for (const auto& entry : tensors) {
    const std::string name = hf_bert_name(strip_wrappers(entry.first));
    if (model.weights.contains(name) || model.weights.contains(prefix + name)) {
      found.push_back(entry);
    }
  }
  return found;
}

/// Reads the state of the optimizer whose dict lies beside the model's.
void read_moments(ForeignModel& model, const std::vector<fs::path>& paths,
                  const NamedTensors& tensors) {
  if (paths.size() == 1 && model.config.model) {
    ForeignState state = ForeignState::open(*model.files, paths[0]);
    for (const char* key : kOptimizerKeys) {
      const auto dict = state.dict(state.root(), key);
      if (!dict) continue;
      NamedOptimizer optimizer = read_numbered_optimizer(
          *model.files, {{std::move(state), *dict}}, numbered_parameters(model, tensors));
      model.exp_avg = merge_state(model, {{std::move(optimizer.exp_avg)}}, "exp_avg");
      model.exp_avg_sq =
          merge_state(model, {{std::move(optimizer.exp_avg_sq)}}, "exp_avg_sq");
      model.updates = optimizer.updates;
      return;
    }
  }
  fail_input(
      "import",
      "{}: --format checkpoint needs the optimizer's state beside the weights, in one "
      "file and of a model that is trained here; import it as a Hugging Face directory",
      model.path.string());
}

}  // namespace

std::optional<ForeignModel> open_state_dict(const fs::path& path,
                                            const ForeignOptions& options) {
  ForeignModel model;
  model.path = path;
  model.what = "PyTorch state dict";
  std::vector<fs::path> paths;
  if (fs::is_directory(path)) {
    if (!format::list_hf_shards(path).empty()) {
      fail_input("import",
                 "{}: is a Hugging Face directory with safetensors already; use it as it "
                 "is, or longhaul export for another dtype",
                 path.string());
    }
    paths = files_of(path, model.what);
    if (paths.empty()) return std::nullopt;
  } else {
    if (is_meta_file(path)) refuse_meta(path);
    if (path.extension() == ".safetensors") {
      fail_input("import",
                 "{}: is a safetensors file already; its directory can be used as it is",
                 path.string());
    }
    paths = {path};
  }
  const fs::path beside =
      fs::is_directory(path) ? path : fs::absolute(path).parent_path();
  model.config = find_config(options.config, {beside});
  model.files = std::make_shared<ForeignFiles>(fs::path(), options.limits);
  NamedTensors tensors;
  for (const fs::path& file : paths) open_file(model, file, tensors);
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      fail_input("import", "{}: '{:.80}' is in two files", path.string(), name);
    }
  }
  set_weights(model, {{tensors}}, options);
  if (options.want_optimizer) read_moments(model, paths, tensors);
  return model;
}

}  // namespace longhaul::imports
