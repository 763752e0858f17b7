#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/imports/dcp_metadata.h"
#include "longhaul/imports/model.h"

namespace longhaul::imports {
namespace {

// The directories of one checkpoint: itself, or one per tensor-parallel rank
// ("tp4-0" ... "tp4-3").
std::vector<fs::path> checkpoint_dirs(const fs::path& path) {
  if (fs::exists(path / ".metadata")) return {path};
  static const std::regex pattern("tp(\\d{1,4})-(\\d{1,4})");
  std::map<int, fs::path> dirs;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    std::smatch match;
    const std::string name = entry.path().filename().string();
    if (!std::regex_match(name, match, pattern) ||
        !fs::exists(entry.path() / ".metadata")) {
      continue;
    }
    count = std::max(count, std::stoi(match[1]));
    dirs[std::stoi(match[2])] = entry.path();
  }
  std::vector<fs::path> result;
  for (int rank = 0; rank < count; ++rank) {
    if (!dirs.contains(rank)) {
      throw InputError("import",
                       fmt::format("{}: {} of {} tensor-parallel folders; tp{}-{} "
                                   "is missing",
                                   path.string(), dirs.size(), count, count, rank));
    }
    result.push_back(dirs[rank]);
  }
  return result;
}

// "optimizer.state.NAME.exp_avg", "app.optim.param_groups.0.lr": a part of the name
// begins with optim.
bool is_optimizer(const std::string& name) {
  return name.starts_with("optim") || name.find(".optim") != std::string::npos;
}

// What stands before the model's names: "", "model.", "app.model." ...
std::string model_prefix(const DcpCheckpoint& checkpoint, const fs::path& dir,
                         const ForeignConfig& config) {
  const std::string first =
      config.model ? config.model->description.stored_tensors().front().name : "";
  std::set<std::string> prefixes;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (is_optimizer(name)) continue;
    if (config.model && name.ends_with(first)) {
      prefixes.insert(name.substr(0, name.size() - first.size()));
    }
    if (!config.model) prefixes.insert(name.starts_with("model.") ? "model." : "");
  }
  if (prefixes.size() == 1) return *prefixes.begin();
  if (!config.model && prefixes.contains("model.")) return "model.";
  throw InputError(
      "import",
      fmt::format("{}: {} tensors, of which {} end in '{}'; the names are not those of "
                  "Hugging Face's {} (the first is '{:.100}')",
                  dir.string(), checkpoint.tensors.size(), prefixes.size(), first,
                  config.model_type,
                  checkpoint.tensors.empty() ? "" : checkpoint.tensors.begin()->first));
}

// One kind of optimizer state: "optimizer.state.NAME.exp_avg" for every parameter. A tied
// head is no parameter of its own; the optimizer may know the two by either name.
NamedTensors moments_of(const DcpCheckpoint& checkpoint, const std::string& prefix,
                        const NamedTensors& weights, const std::string& kind,
                        const fs::path& dir, const std::optional<TiedHead>& tied) {
  std::map<std::string, const Mosaic*> by_end;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!is_optimizer(name)) continue;
    for (size_t at = name.find("state."); at != std::string::npos;
         at = name.find("state.", at + 1)) {
      by_end[name.substr(at + 6)] = &tensor;
    }
  }
  const auto find = [&](const std::string& name) {
    const auto found = by_end.find(fmt::format("{}.{}", name, kind));
    return found != by_end.end()
               ? found
               : by_end.find(fmt::format("{}{}.{}", prefix, name, kind));
  };
  NamedTensors result;
  for (const auto& [name, weight] : weights) {
    const std::string plain = strip_wrappers(name);
    if (is_buffer(plain) || weight.dtype() == DType::Bool) continue;
    if (tied && plain == tied->head) continue;
    auto found = find(name);
    if (found == by_end.end() && tied && plain == tied->embedding) {
      found = find(name.substr(0, name.size() - plain.size()) + tied->head);
    }
    if (found == by_end.end()) {
      throw InputError("import", fmt::format("{}: no {} of {}; import the weights alone "
                                             "(without --format checkpoint)",
                                             dir.string(), kind, name));
    }
    result.emplace_back(name, *found->second);
  }
  return result;
}

std::optional<int64_t> updates_of(const ForeignFiles& files,
                                  const DcpCheckpoint& checkpoint) {
  std::optional<int64_t> updates;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!is_optimizer(name) || !name.ends_with(".step")) continue;
    if (tensor.num_elements() != 1 || !is_float(tensor.dtype())) continue;
    double value = 0;
    tensor.read_all(files, DType::F64, std::as_writable_bytes(std::span(&value, 1)));
    if (value < 0 || value > 1e15 || value != std::floor(value)) continue;
    const auto count = static_cast<int64_t>(value);
    if (updates && *updates != count) {
      throw InputError("import", fmt::format("parameters with {} and {} optimizer steps",
                                             *updates, count));
    }
    updates = count;
  }
  return updates;
}

void note_rest(ForeignModel& model, const DcpCheckpoint& checkpoint) {
  if (checkpoint.objects.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(8, checkpoint.objects.size()); ++i) {
    names += (i == 0 ? "" : ", ") + checkpoint.objects[i];
  }
  model.notes.push_back(fmt::format(
      "{} entries that are no tensors do not come along: {}{}", checkpoint.objects.size(),
      names, checkpoint.objects.size() > 8 ? " ..." : ""));
}

}  // namespace

std::optional<ForeignModel> open_dcp(const fs::path& path,
                                     const ForeignOptions& options) {
  if (!fs::is_directory(path)) return std::nullopt;
  const std::vector<fs::path> dirs = checkpoint_dirs(path);
  if (dirs.empty()) return std::nullopt;
  ForeignModel model;
  model.path = path;
  model.config = find_config(options.config, {path, fs::absolute(path).parent_path()});
  model.files = std::make_shared<ForeignFiles>(path, options.limits);
  std::vector<NamedTensors> ranks;
  std::vector<NamedTensors> moments[2];
  std::string prefix;
  for (const fs::path& dir : dirs) {
    const DcpCheckpoint checkpoint = read_dcp(*model.files, dir);
    prefix = model_prefix(checkpoint, dir, model.config);
    NamedTensors weights;
    for (const auto& [name, tensor] : checkpoint.tensors) {
      if (is_optimizer(name)) {
        model.has_optimizer = true;
      } else if (name.starts_with(prefix)) {
        weights.emplace_back(name.substr(prefix.size()), tensor);
      } else {
        model.ignored.push_back(name + " (not the model's)");
      }
    }
    if (options.want_optimizer) {
      const std::optional<TiedHead> tied =
          model.config.model ? model.config.model->description.tied : std::nullopt;
      for (size_t i = 0; i < 2; ++i) {
        moments[i].push_back(moments_of(checkpoint, prefix, weights,
                                        i == 0 ? "exp_avg" : "exp_avg_sq", dir, tied));
      }
      model.updates = updates_of(*model.files, checkpoint);
    }
    if (dir == dirs.front()) note_rest(model, checkpoint);
    ranks.push_back(std::move(weights));
  }
  model.what = "torch.distributed.checkpoint";
  if (dirs.size() > 1) model.what += fmt::format(" of SMP, tp {}", dirs.size());
  if (!prefix.empty()) model.what += fmt::format(", names under '{}'", prefix);
  set_weights(model, {std::move(ranks)}, options);
  if (options.want_optimizer) {
    model.exp_avg = merge_state(model, {std::move(moments[0])}, "exp_avg");
    model.exp_avg_sq = merge_state(model, {std::move(moments[1])}, "exp_avg_sq");
    if (!model.updates) {
      throw InputError("import", path.string() + ": the optimizer state has no step");
    }
  }
  return model;
}

}  // namespace longhaul::imports
