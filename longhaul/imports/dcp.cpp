#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/imports/foreign_files.h"
#include "longhaul/imports/foreign_model.h"
#include "longhaul/imports/foreign_state.h"
#include "longhaul/imports/mosaic.h"

namespace longhaul::imports {
namespace {

/// What a directory of torch.distributed.checkpoint holds.
struct DcpCheckpoint {
  std::map<std::string, Mosaic> tensors;  ///< whole, by their full names
  std::vector<std::string> objects;       ///< names of entries that are no tensors
  /// The values of entries named "....step" that are numbers or tensors of one element.
  std::map<std::string, double> steps;
};

using Ref = PickleTree::Ref;
using Kind = PickleKind;
using Ints = std::vector<int64_t>;

constexpr std::string_view kClasses = "torch.distributed.checkpoint.metadata.";
constexpr std::string_view kStep = ".step";

struct Chunk {
  std::string tensor;
  Ints offset;
  Ints extent;
  TorchPart part;
};

class Reader {
 public:
  Reader(ForeignFiles& files, const fs::path& dir)
      : files_(files),
        dir_(dir),
        what_((dir / ".metadata").string()),
        tree_(files.read_bare_pickle(files.add(dir / ".metadata"))) {}

  DcpCheckpoint run() {
    list_places(field(tree_.root, "storage_data"));
    list_tensors(field(tree_.root, "state_dict_metadata"));
    read_chunks();
    read_objects();
    for (auto& [name, tensor] : result_.tensors) tensor.check_complete(name);
    return std::move(result_);
  }

 private:
  struct Place {
    std::string file;
    uint64_t offset = 0;
    uint64_t length = 0;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("import", "{}: {}", what_,
               fmt::format(problem, std::forward<Args>(args)...));
  }

  Ref field(Ref object, std::string_view name) const {
    const auto found = tree_.find(object, name);
    if (!found) {
      fail("{} has no {}; this is not a known form of torch.distributed.checkpoint",
           tree_.describe(object), name);
    }
    return *found;
  }
  Ints ints(Ref ref, std::string_view name) const {
    const auto values = tree_.as_ints(ref);
    if (!values || values->size() > 16) {
      fail("{} is {}, not a list of numbers", name, tree_.describe(ref));
    }
    for (const int64_t value : *values) {
      if (value < 0) fail("{} holds the number {}, which is below 0", name, value);
    }
    return *values;
  }
  uint64_t count(Ref object, std::string_view name) const {
    const auto value = tree_.as_int(field(object, name));
    if (!value || *value < 0) fail("{} is no number", name);
    return static_cast<uint64_t>(*value);
  }
  std::string text(Ref object, std::string_view name) const {
    const auto value = tree_.as_text(field(object, name));
    if (!value) fail("{} is no text", name);
    return std::string(*value);
  }

  // Reads storage_data, which maps a name and the offset of a chunk to file and bytes.
  void list_places(Ref dict) {
    if (!tree_.is(dict, Kind::Dict)) {
      fail("storage_data is {}, not a dict", tree_.describe(dict));
    }
    for (const auto& [key, value] : tree_.entries(dict)) {
      if (!tree_.is(key, Kind::Object)) {
        fail("a key of storage_data is {}", tree_.describe(key));
      }
      Ints offset;
      const auto at = tree_.find(key, "offset");
      if (at && !tree_.is(*at, Kind::None)) offset = ints(*at, "offset");
      const auto transforms = tree_.find(value, "transform_descriptors");
      if (transforms && !tree_.is(*transforms, Kind::None)) {
        fail("its tensors are compressed, which is not supported");
      }
      places_[{text(key, "fqn"), offset}] = {
          text(value, "relative_path"), count(value, "offset"), count(value, "length")};
    }
  }

  void list_tensors(Ref dict) {
    if (!tree_.is(dict, Kind::Dict)) {
      fail("state_dict_metadata is {}, not a dict", tree_.describe(dict));
    }
    for (const auto& [key, value] : tree_.entries(dict)) {
      const auto name = tree_.as_text(key);
      if (!name || !tree_.is(value, Kind::Object)) {
        fail("the entry of {} in state_dict_metadata has an unknown form",
             tree_.describe(key));
      }
      const std::string& type = tree_.object_class(value);
      if (type == std::string(kClasses) + "TensorStorageMetadata") {
        list_chunks(std::string(*name), value);
      } else {
        result_.objects.emplace_back(*name);
        list_object(std::string(*name));
      }
    }
  }

  /// Notes a pickled object, which is read only if it is a count of updates.
  void list_object(const std::string& name) {
    if (!name.ends_with(kStep)) return;
    const auto place = places_.find({name, {}});
    if (place == places_.end()) fail("nothing says where {:.100} lies", name);
    const fs::path path = join_inside(dir_, place->second.file, "import");
    objects_.emplace_back(
        name, TorchPart{files_.add(path), place->second.offset, place->second.length});
  }

  void list_chunks(const std::string& name, Ref tensor) {
    shapes_[name] = ints(field(tensor, "size"), "size");
    const Ref chunks = field(tensor, "chunks");
    if (!tree_.is(chunks, Kind::List)) {
      fail("chunks is {}, not a list", tree_.describe(chunks));
    }
    for (const Ref ref : tree_.items(chunks)) {
      Chunk chunk;
      chunk.tensor = name;
      chunk.offset = ints(field(ref, "offsets"), "offsets");
      chunk.extent = ints(field(ref, "sizes"), "sizes");
      const Ints& shape = shapes_[name];
      bool good =
          chunk.offset.size() == shape.size() && chunk.extent.size() == shape.size();
      bool empty = false;
      for (size_t d = 0; good && d < shape.size(); ++d) {
        good =
            chunk.offset[d] <= shape[d] && chunk.extent[d] <= shape[d] - chunk.offset[d];
        empty = empty || chunk.extent[d] == 0;
      }
      if (!good) {
        fail("{:.100}: the chunk {} at {} does not lie in {}", name,
             format::describe_shape(chunk.extent), format::describe_shape(chunk.offset),
             format::describe_shape(shape));
      }
      if (empty) continue;
      const auto place = places_.find({name, chunk.offset});
      if (place == places_.end()) {
        fail("{:.100}: nothing says where the chunk at {} lies", name,
             format::describe_shape(chunk.offset));
      }
      const fs::path path = join_inside(dir_, place->second.file, "import");
      chunk.part = {files_.add(path), place->second.offset, place->second.length};
      chunks_.push_back(std::move(chunk));
    }
  }

  void read_chunks() {
    std::vector<TorchPart> parts;
    for (const Chunk& chunk : chunks_) parts.push_back(chunk.part);
    std::vector<PickleTree> trees = files_.read_trees(parts);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Chunk& chunk = chunks_[i];
      const ForeignState state(std::move(trees[i]), chunk.part.file);
      const auto stored = state.tensor(state.root());
      if (!stored || stored->shape != chunk.extent) {
        fail("{:.100}: the chunk {} in {} holds {} {}", chunk.tensor,
             format::describe_shape(chunk.extent), files_.path(chunk.part.file).string(),
             state.tree().describe(state.root()),
             stored ? format::describe_shape(stored->shape) : "");
      }
      const auto [whole, added] = result_.tensors.try_emplace(
          chunk.tensor, Mosaic(shapes_.at(chunk.tensor), stored->dtype));
      if (whole->second.dtype() != stored->dtype) {
        fail("{}: its chunks have several dtypes", chunk.tensor);
      }
      whole->second.put(Mosaic(*stored), Ints(chunk.extent.size(), 0), chunk.extent,
                        chunk.offset);
      if (chunk.tensor.ends_with(kStep)) take_step(chunk.tensor, state);
    }
    for (const auto& [name, shape] : shapes_) {
      if (!result_.tensors.contains(name)) fail("{}: a tensor without chunks", name);
    }
  }

  void read_objects() {
    std::vector<TorchPart> parts;
    for (const auto& [name, part] : objects_) parts.push_back(part);
    std::vector<PickleTree> trees = files_.read_trees(parts);
    for (size_t i = 0; i < objects_.size(); ++i) {
      take_step(objects_[i].first,
                ForeignState(std::move(trees[i]), objects_[i].second.file));
    }
  }

  /// Takes a count of updates, if it is a number. Functions that need a count report a
  /// missing one.
  void take_step(const std::string& name, const ForeignState& state) {
    const auto step = state.number(files_, state.root());
    if (step) result_.steps[name] = *step;
  }

  ForeignFiles& files_;
  const fs::path& dir_;
  std::string what_;
  PickleTree tree_;
  std::map<std::pair<std::string, Ints>, Place> places_;
  std::map<std::string, Ints> shapes_;
  std::vector<Chunk> chunks_;
  std::vector<std::pair<std::string, TorchPart>> objects_;
  DcpCheckpoint result_;
};

/// Reads a distributed checkpoint:
/// - .metadata, a pickle that lists each tensor's chunks and their places;
/// - the headers of all chunks in the .distcp files;
/// - the counts of updates, which optimizers keep as whole numbers, as floating-point
///   numbers or as tensors.
///
/// Throws InputError for a chunk that is missing, has another shape than the list says,
/// or lies outside of the directory.
DcpCheckpoint read_dcp(ForeignFiles& files, const fs::path& dir) {
  return Reader(files, dir).run();
}

// Returns the directories of one checkpoint: the path itself, or one per tensor-parallel
// rank ("tp4-0" ... "tp4-3").
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
      fail_input("import",
                 "{}: holds {} of {} tensor-parallel folders; tp{}-{} is missing",
                 path.string(), dirs.size(), count, count, rank);
    }
    result.push_back(dirs[rank]);
  }
  return result;
}

// Returns whether an entry belongs to the optimizer. A part of such a name begins with
// optim, as in "optimizer.state.NAME.exp_avg" and "app.optim.param_groups.0.lr".
bool is_optimizer(const std::string& name) {
  return name.starts_with("optim") || name.find(".optim") != std::string::npos;
}

// Returns the prefix of the model's names: "", "model.", "app.model." ...
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
  fail_input("import",
             "{}: {} tensors, of which {} end in '{}'; the names are not those of "
             "Hugging Face's {} (the first is '{:.100}')",
             dir.string(), checkpoint.tensors.size(), prefixes.size(), first,
             config.model_type,
             checkpoint.tensors.empty() ? "" : checkpoint.tensors.begin()->first);
}

// Finds the optimizer's state of parameters, as in "optimizer.state.NAME.exp_avg". A tied
// head is no parameter of its own, and the optimizer may use the name of the head or the
// embedding.
class OptimizerEntries {
 public:
  OptimizerEntries(const DcpCheckpoint& checkpoint, std::string prefix,
                   std::optional<TiedHead> tied, fs::path dir)
      : prefix_(std::move(prefix)), tied_(std::move(tied)), dir_(std::move(dir)) {
    for (const auto& [name, tensor] : checkpoint.tensors) {
      for_ends(name, [&](const std::string& end) { tensors_[end] = &tensor; });
    }
    for (const auto& [name, step] : checkpoint.steps) {
      for_ends(name, [&](const std::string& end) { steps_[end] = step; });
    }
  }

  /// Returns one kind of moment of every parameter that the optimizer has state of.
  /// Parameters without state were frozen, since torch makes state with the first
  /// gradient.
  NamedTensors moments(const NamedTensors& weights, const std::string& kind) const {
    NamedTensors result;
    for (const auto& [name, weight] : weights) {
      if (!is_parameter(name, weight)) continue;
      if (const Mosaic* const* found = find(tensors_, name, kind)) {
        result.emplace_back(name, **found);
      } else if (holds(name)) {
        refuse("no {} of {}", kind, name);
      }
    }
    if (result.empty()) refuse("no {} of any parameter", kind);
    return result;
  }

  /// Returns the number of updates of each parameter, 0 if there is no state.
  std::map<std::string, int64_t> updates(const NamedTensors& weights) const {
    std::map<std::string, int64_t> counts;
    for (const auto& [name, weight] : weights) {
      if (!is_parameter(name, weight)) continue;
      if (!holds(name)) {
        counts[name] = 0;
        continue;
      }
      const double* step = find(steps_, name, "step");
      if (step == nullptr) refuse("the state of {} has no step", name);
      if (!(*step >= 0 && *step <= 1e15 && *step == std::floor(*step))) {
        refuse("step {} of {} is no count of updates", *step, name);
      }
      counts[name] = static_cast<int64_t>(*step);
    }
    return counts;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("import",
               "{}: the optimizer's entries: {}; import the weights alone (without "
               "--format checkpoint)",
               dir_.string(), fmt::format(problem, std::forward<Args>(args)...));
  }

  template <typename Take>
  static void for_ends(const std::string& name, const Take& take) {
    if (!is_optimizer(name)) return;
    for (size_t at = name.find("state."); at != std::string::npos;
         at = name.find("state.", at + 1)) {
      take(name.substr(at + 6));
    }
  }

  bool is_parameter(const std::string& name, const Mosaic& weight) const {
    const std::string plain = strip_wrappers(name);
    return !is_buffer(plain) && weight.dtype() != format::DType::Bool &&
           !(tied_ && plain == tied_->head);
  }

  bool holds(const std::string& name) const {
    return find(tensors_, name, "exp_avg") != nullptr ||
           find(tensors_, name, "exp_avg_sq") != nullptr ||
           find(steps_, name, "step") != nullptr;
  }

  template <typename Value>
  const Value* find(const std::map<std::string, Value>& entries, const std::string& name,
                    const std::string& kind) const {
    std::vector<std::string> names{name, prefix_ + name};
    const std::string plain = strip_wrappers(name);
    if (tied_ && plain == tied_->embedding) {
      names.push_back(name.substr(0, name.size() - plain.size()) + tied_->head);
      names.push_back(prefix_ + names.back());
    }
    for (const std::string& one : names) {
      const auto found = entries.find(fmt::format("{}.{}", one, kind));
      if (found != entries.end()) return &found->second;
    }
    return nullptr;
  }

  std::string prefix_;
  std::optional<TiedHead> tied_;
  fs::path dir_;
  std::map<std::string, const Mosaic*> tensors_;
  std::map<std::string, double> steps_;
};

void note_rest(ForeignModel& model, const DcpCheckpoint& checkpoint) {
  if (checkpoint.objects.empty()) return;
  const std::span first(checkpoint.objects.data(),
                        std::min<size_t>(8, checkpoint.objects.size()));
  model.notes.push_back(fmt::format(
      "{} entries that are no tensors are not imported: {}{}", checkpoint.objects.size(),
      fmt::join(first, ", "), checkpoint.objects.size() > 8 ? " ..." : ""));
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
  std::map<std::string, int64_t> updates;
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
      const OptimizerEntries entries(
          checkpoint, prefix,
          model.config.model ? model.config.model->description.tied : std::nullopt, dir);
      for (size_t i = 0; i < 2; ++i) {
        moments[i].push_back(entries.moments(weights, i == 0 ? "exp_avg" : "exp_avg_sq"));
      }
      for (const auto& [name, count] : entries.updates(weights)) {
        updates[name] = std::max(updates[name], count);
      }
    }
    if (dir == dirs.front()) note_rest(model, checkpoint);
    ranks.push_back(std::move(weights));
  }
  model.what = "torch.distributed.checkpoint";
  if (dirs.size() > 1) model.what += fmt::format(" of SMP, tp {}", dirs.size());
  if (!prefix.empty()) model.what += fmt::format(", names under '{}'", prefix);
  set_weights(model, {std::move(ranks)}, options);
  if (options.want_optimizer) {
    model.exp_avg = merge_state(model, {std::move(moments[0])}, "exp_avg", updates);
    model.exp_avg_sq = merge_state(model, {std::move(moments[1])}, "exp_avg_sq", updates);
    take_updates(model, updates);
  }
  return model;
}

}  // namespace longhaul::imports
