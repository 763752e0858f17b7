#include "longhaul/imports/shape_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/imports/foreign_names.h"

namespace longhaul::imports {
namespace {

/// Returns whether several matrices share the stored tensor, each in one piece. A rank's
/// part of such a tensor is a part of each matrix, and so in several pieces.
bool in_pieces(const ParameterDescription& p) {
  return p.stored && p.split && p.stored->block == p.shape[0] &&
         p.stored->rows > p.shape[0];
}

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

}  // namespace

std::map<std::string, Mosaic> merge_by_shape(
    const ForeignFiles& files, const std::vector<std::vector<NamedTensors>>& ranks,
    const ModelDescription& model, const MergeOptions& options, MergeReport& report) {
  return ShapeMerger(files, model, options, report).run(ranks);
}

}  // namespace longhaul::imports
