#include "longhaul/imports/foreign_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/families/description/description.h"
#include "longhaul/families/family.h"
#include "longhaul/families/parameter_names.h"
#include "longhaul/format/refused_forms.h"
#include "longhaul/format/side_files.h"
#include "longhaul/imports/foreign_names.h"
#include "longhaul/imports/foreign_source.h"

namespace longhaul::imports {
namespace {

/// Returns whether several matrices share the stored tensor, each as one range of rows. A
/// tp rank's part of such a tensor has rows of each matrix, and so is several ranges.
bool in_pieces(const ParameterDescription& p) {
  return p.stored && p.split && p.stored->block == p.shape[0] &&
         p.stored->rows > p.shape[0];
}

/// Makes the whole stored tensors of a model from the tensors of every rank,
/// ranks[pp][tp], by the shapes of the model's description. Tensors that are smaller
/// along one dim are concatenated in the order of ranks, as neuronx-distributed's
/// parallel layers hold them. Whole tensors are copies, which are compared with the
/// first. Tables of older versions and a tied head are skipped. Throws InputError that
/// names what is missing, unknown or of another shape, and fused matrices of which a
/// rank's part is several ranges. The caller checks that all tensors are there.
class ShapeMerger {
 public:
  ShapeMerger(const ForeignFiles& files, const ModelDescription& model,
              const MergeOptions& options, MergeReport& report)
      : files_(files), model_(model), options_(options), report_(report) {
    for (const format::TensorSlice& tensor : model.stored_tensors()) {
      shapes_[tensor.name] = tensor.global_shape;
    }
    for (const ParameterDescription& p : model.parameters()) {
      if (in_pieces(p)) in_pieces_.insert(p.stored->name);
    }
  }

  std::map<std::string, Mosaic> run(const std::vector<std::vector<NamedTensors>>& ranks) {
    for (const auto& stage : ranks) merge_stage(stage);
    report_.ignored.assign(ignored_.begin(), ignored_.end());
    return std::move(result_);
  }

 private:
  /// Returns the name in today's Hugging Face files, or nothing if the tensor is no
  /// parameter.
  std::optional<std::string> name_of(const std::string& found, const Mosaic& tensor) {
    const std::string plain = hf_bert_name(strip_wrappers(found));
    for (const std::string& name : {plain, model_.optional_prefix + plain}) {
      if (shapes_.contains(name)) return name;
      const std::vector<std::string> spare = model_.spare_names();
      if (std::ranges::find(spare, name) != spare.end()) {
        ignored_.insert(found);
        return std::nullopt;
      }
    }
    if (plain.empty() || is_buffer(plain) || tensor.dtype() == format::DType::Bool) {
      ignored_.insert(found);
      return std::nullopt;
    }
    fail_input("import", "the tensor '{:.100}' {} is none of the model's", found,
               format::describe_shape(tensor.shape()));
  }

  void merge_stage(const std::vector<NamedTensors>& ranks) {
    std::map<std::string, std::vector<const Mosaic*>> parts;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const auto& [found, tensor] : ranks[rank]) {
        const auto name = name_of(found, tensor);
        if (!name) continue;
        std::vector<const Mosaic*>& held = parts[*name];
        if (held.size() > rank) {
          fail_input("import", "two tensors are named {:.100}", *name);
        }
        if (held.size() < rank) {
          fail_input("import", "tensor-parallel rank {} has no '{:.100}', rank {} has",
                     held.size(), *name, rank);
        }
        held.push_back(&tensor);
      }
    }
    for (const auto& [name, held] : parts) {
      if (held.size() != ranks.size()) {
        fail_input("import", "tensor-parallel rank {} has no '{:.100}'", held.size(),
                   name);
      }
      keep(name, merged(name, held));
    }
  }

  Mosaic merged(const std::string& name, const std::vector<const Mosaic*>& held) {
    const std::vector<int64_t>& whole = shapes_.at(name);
    const std::vector<int64_t>& part = held[0]->shape();
    if (part == whole) {
      for (size_t rank = 1; rank < held.size(); ++rank) compare(*held[0], *held[rank]);
      return *held[0];
    }
    const auto ranks = static_cast<int64_t>(held.size());
    for (size_t dim = 0; dim < whole.size() && part.size() == whole.size(); ++dim) {
      std::vector<int64_t> together = part;
      together[dim] *= ranks;
      if (together != whole) continue;
      if (in_pieces_.contains(name)) {
        fail_input(
            "import",
            "{}: each of {} ranks has a part {} of matrices that lie one after another; "
            "how the parts lie is not known: import the Hugging Face files",
            name, ranks, format::describe_shape(part));
      }
      std::vector<Mosaic> parts;
      for (const Mosaic* one : held) parts.push_back(*one);
      return Mosaic::concatenate(parts, dim, name);
    }
    fail_input("import", "{}: {} on each of {} ranks is no share of {} (config.json)",
               name, format::describe_shape(part), ranks, format::describe_shape(whole));
  }

  // Keeps a tensor once, even if two stages hold it.
  void keep(const std::string& name, const Mosaic& tensor) {
    const auto [found, added] = result_.try_emplace(name, tensor);
    if (!added) compare(found->second, tensor);
  }

  void compare(const Mosaic& first, const Mosaic& copy) {
    if (options_.compare_copies) {
      report_.count_copy(count_differences(files_, first, copy));
    }
  }

  const ForeignFiles& files_;
  const ModelDescription& model_;
  const MergeOptions& options_;
  MergeReport& report_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::set<std::string> in_pieces_;
  std::set<std::string> ignored_;
  std::map<std::string, Mosaic> result_;
};

void note_copies(ForeignModel& model) {
  const MergeReport& merged = model.merged;
  if (merged.kv_multiplier > 1) {
    model.notes.push_back(fmt::format(
        "key heads: held {} times in {} order ({}), each kept once; query heads {}",
        merged.kv_multiplier, kv_order_name(*merged.kv_order),
        merged.kv_order_found ? "found by comparing the copies" : "as the options say",
        merged.queries_moved ? "moved back to their order" : "were in order"));
  }
  if (merged.copies == 0) return;
  if (merged.differing_copies == 0) {
    model.notes.push_back(
        fmt::format("copies: {} further copies, all bitwise equal to the first",
                    grouped(merged.copies)));
    return;
  }
  model.notes.push_back(
      fmt::format("copies: {} of {} further copies differ from the first, in {} "
                  "elements; the first is kept",
                  grouped(merged.differing_copies), grouped(merged.copies),
                  grouped(merged.differing_elements)));
}

/// Notes files beside the config that are not imported. If the source lies there too,
/// files that may belong to it are not mentioned.
void note_left_behind(ForeignModel& model) {
  const fs::path& dir = model.config.side_dir;
  if (dir.empty()) return;
  std::error_code error;
  const bool beside = fs::equivalent(dir, model.path, error) ||
                      fs::equivalent(dir, fs::absolute(model.path).parent_path(), error);
  constexpr const char* kOwn[] = {
      "*.bin", "*.pt*", "*.bin.index.json", "*.distcp", "*/", ".metadata", "*.ckpt"};
  for (const std::string& name : format::files_left_behind(dir, {})) {
    const bool own = beside && std::ranges::any_of(kOwn, [&](const char* pattern) {
                       return glob_match(pattern, name);
                     });
    if (own) continue;
    model.ignored.push_back(
        fmt::format("{} (in {}: no side file of a model)", name, dir.string()));
  }
}

// Returns the first dict with tensors below a known key, else the dict itself if it holds
// tensors.
std::optional<PickleTree::Ref> dict_of_tensors(const ForeignState& state,
                                               PickleTree::Ref dict, int depth,
                                               std::string* found_at) {
  const PickleTree& tree = state.tree();
  if (depth > 3 || !tree.is(dict, PickleKind::Dict)) return std::nullopt;
  for (const char* key : {"model", "state_dict", "module", "model_state_dict"}) {
    const auto next = state.dict(dict, key);
    const auto found =
        next ? dict_of_tensors(state, *next, depth + 1, found_at) : std::nullopt;
    if (!found) continue;
    if (found_at != nullptr) *found_at = key + (found_at->empty() ? "" : "." + *found_at);
    return found;
  }
  const bool holds = std::ranges::any_of(tree.entries(dict), [&](const auto& entry) {
    return state.tensor(entry.second).has_value();
  });
  return holds ? std::optional(dict) : std::nullopt;
}

std::map<std::string, Mosaic> merged(const ForeignModel& model,
                                     std::vector<std::vector<NamedTensors>> ranks,
                                     const MergeOptions& options, MergeReport& report) {
  const ModelConfig& config = *model.config.model;
  if (!model.config.is_llama()) {
    return ShapeMerger(*model.files, config.description, options, report).run(ranks);
  }
  return merge_llama(*model.files, std::move(ranks), config.network, options, report);
}

/// Refuses tensors that are incomplete or are not the model's. The tensors of `absent`
/// may be missing.
void check_model(const ForeignModel& model, const std::map<std::string, Mosaic>& tensors,
                 const std::string& what, const std::set<std::string>& absent = {}) {
  for (const auto& [name, tensor] : tensors) tensor.check_complete(name);
  std::vector<format::TensorSlice> expected =
      model.config.model->description.stored_tensors();
  std::erase_if(expected, [&](const format::TensorSlice& tensor) {
    return absent.contains(tensor.name) && !tensors.contains(tensor.name);
  });
  checkpoint::check_tensors(what, ForeignSource(model, tensors).tensors(), expected, {});
}

/// Returns the tensor of the model that a source calls `found`.
std::optional<std::string> weight_named(const ForeignModel& model,
                                        const std::string& found) {
  const std::string plain = hf_bert_name(strip_wrappers(found));
  for (const std::string& name :
       {plain, model.config.model->description.optional_prefix + plain}) {
    if (model.weights.contains(name)) return name;
  }
  return std::nullopt;
}

void take_as_stored(ForeignModel& model, std::vector<std::vector<NamedTensors>>& ranks) {
  const ForeignConfig& config = model.config;
  if (ranks.size() != 1 || ranks[0].size() != 1) {
    fail_input("import",
               "{}: shards of a model of type '{}', which are put together by its "
               "description: {}",
               model.path.string(), config.model_type,
               config.not_read.empty() ? "this program has no description of that family"
                                       : config.not_read);
  }
  for (auto& [name, tensor] : ranks[0][0]) {
    std::string plain = strip_wrappers(name);
    if (config.model_type == "bert") plain = hf_bert_name(plain);
    if (plain.empty() || is_buffer(plain)) {
      model.ignored.push_back(name + " (no parameter)");
      continue;
    }
    if (!model.weights.try_emplace(plain, std::move(tensor)).second) {
      fail_input("import", "{}: two tensors are named {:.80}", model.path.string(),
                 plain);
    }
  }
  model.notes.push_back(fmt::format(
      "model type '{}': names and shapes are as stored, not compared with the config{}{}",
      config.model_type, config.not_read.empty() ? "" : ": ", config.not_read));
}

}  // namespace

ForeignConfig find_config(const fs::path& given, const std::vector<fs::path>& places) {
  ForeignConfig config;
  if (!given.empty()) {
    const bool is_directory = is_seen_directory(given);
    config.path = is_directory ? given / "config.json" : given;
    if (is_directory) config.side_dir = given;
    if (!is_seen(config.path)) {
      fail_input("import",
                 "{}; --config takes a Hugging Face directory or its config.json",
                 missing_path(config.path));
    }
  } else {
    for (const fs::path& place : places) {
      if (!is_seen_file(place / "config.json")) continue;
      config.path = place / "config.json";
      config.side_dir = place;
      break;
    }
    if (config.path.empty()) {
      fail_input("import",
                 "{}: no config.json beside it; give the model's with --config (a "
                 "Hugging Face directory, or the file)",
                 places.front().string());
    }
  }
  const Json json = read_json(config.path, uint64_t{1} << 24);
  if (json.is_object() && json.contains("model_type") && json["model_type"].is_string()) {
    config.model_type = json["model_type"].get<std::string>();
  }
  if (families::find_family(config.model_type) == nullptr) return config;
  try {
    config.model = load_model_config(config.path);
  } catch (const InputError& refused) {
    // The weights of a model of another family than llama can be imported even if that
    // model cannot be trained.
    if (config.model_type == "llama") throw;
    config.not_read = refused.what();
  }
  return config;
}

PickleTree::Ref find_state_dict(const ForeignState& state, const std::string& what,
                                std::string* found_at) {
  const auto found = dict_of_tensors(state, state.root(), 0, found_at);
  if (found) return *found;
  fail_input("import",
             "{}: holds {}, but no state dict (names and tensors), neither at the top "
             "nor under model, state_dict or module",
             what, state.tree().describe(state.root()));
}

void set_weights(ForeignModel& model, std::vector<std::vector<NamedTensors>> ranks,
                 const ForeignOptions& options) {
  if (!model.config.model) {
    take_as_stored(model, ranks);
    return;
  }
  MergeOptions merge;
  merge.kv_order = options.kv_order;
  merge.hardware = options.hardware;
  merge.fused_rows = model.fused_rows = options.fused_rows;
  model.weights = merged(model, std::move(ranks), merge, model.merged);
  for (const std::string& name : model.merged.ignored) {
    model.ignored.push_back(name + " (no parameter)");
  }
  check_model(model, model.weights, model.path.string());
  note_copies(model);
}

std::map<std::string, Mosaic> merge_state(const ForeignModel& model,
                                          std::vector<std::vector<NamedTensors>> ranks,
                                          const std::string& kind,
                                          const std::map<std::string, int64_t>& updates) {
  if (!model.config.model) {
    fail_input("import",
               "{}: the {} of a model of type '{}' cannot be named; import the weights "
               "alone (without --format checkpoint)",
               model.path.string(), kind, model.config.model_type);
  }
  MergeOptions options;
  options.compare_copies = false;
  options.fused_rows = model.fused_rows;
  MergeReport report;
  report.kv_order = model.merged.kv_order;
  report.queries_moved = model.merged.queries_moved;
  auto result = merged(model, std::move(ranks), options, report);
  std::set<std::string> absent;
  for (const auto& [found, count] : updates) {
    const auto name = count == 0 ? weight_named(model, found) : std::nullopt;
    if (name) absent.insert(*name);
  }
  check_model(model, result, fmt::format("{} ({})", model.path.string(), kind), absent);
  return result;
}

void take_updates(ForeignModel& model, const std::map<std::string, int64_t>& updates) {
  int64_t most = 0;
  for (const auto& [found, count] : updates) most = std::max(most, count);
  model.updates = most;
  for (const auto& [found, count] : updates) {
    if (count == most) continue;
    const auto name = weight_named(model, found);
    if (!name) {
      fail_input("import",
                 "{}: {} has {} optimizer steps, but other tensors have {}, and it is "
                 "not a tensor of the model by itself; import the weights alone (without "
                 "--format checkpoint)",
                 model.path.string(), found, count, most);
    }
    model.fewer_updates[*name] = count;
  }
  if (model.fewer_updates.empty()) return;
  model.notes.push_back(fmt::format(
      "{} had fewer than {} updates (the first: {}, {}): their own counts are imported",
      counted(std::ssize(model.fewer_updates), "tensor"), grouped(most),
      model.fewer_updates.begin()->first, model.fewer_updates.begin()->second));
}

std::map<std::string, int64_t> fewer_updates_of_parameters(const ForeignModel& model) {
  std::map<std::string, int64_t> counts;
  for (const ParameterDescription& p : model.config.model->description.parameters()) {
    const auto found = model.fewer_updates.find(file_name(p));
    if (found != model.fewer_updates.end()) counts[p.name] = found->second;
  }
  return counts;
}

ForeignModel open_foreign(const fs::path& path, const ForeignOptions& options) {
  if (!is_seen(path)) throw InputError("import", missing_path(path));
  const std::string other = format::other_form(path);
  if (!other.empty() && !is_seen(path / "config.json")) {
    throw InputError("import", path.string() + ": " + other);
  }
  for (const auto& open : {open_dcp, open_nxd, open_state_dict}) {
    auto model = open(path, options);
    if (!model) continue;
    note_left_behind(*model);
    return std::move(*model);
  }
  fail_input(
      "import",
      "{}: is not a known form of checkpoint. Known forms are: a state dict (.pt, .pth, "
      ".bin, or pytorch_model.bin.index.json), a neuronx-distributed checkpoint (step_N "
      "or rank files), a torch.distributed.checkpoint directory (.metadata)",
      path.string());
}

}  // namespace longhaul::imports
