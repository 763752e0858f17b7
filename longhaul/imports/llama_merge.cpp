#include "longhaul/imports/llama_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/imports/foreign_names.h"
#include "longhaul/imports/kv_heads.h"

namespace longhaul::imports {
namespace {

constexpr std::string_view kLayers = "model.layers.";

std::string renumbered(const std::string& name, int64_t offset) {
  const auto layer = layer_of(name);
  if (!layer) return name;
  const size_t end = name.find('.', kLayers.size());
  return fmt::format("{}{}{}", kLayers, *layer + offset, name.substr(end));
}

// Renumbers the layers of stages that number their layers from 0.
void number_layers(std::vector<std::vector<NamedTensors>>& ranks) {
  std::set<int64_t> seen;
  std::vector<int64_t> counts;
  bool shared = false;
  bool from_zero = true;
  for (const auto& stage : ranks) {
    std::set<int64_t> layers;
    for (const auto& [name, tensor] : stage.front()) {
      if (const auto layer = layer_of(name)) layers.insert(*layer);
    }
    from_zero = from_zero && !layers.empty() &&
                *layers.rbegin() + 1 == static_cast<int64_t>(layers.size());
    counts.push_back(static_cast<int64_t>(layers.size()));
    for (const int64_t layer : layers) shared = !seen.insert(layer).second || shared;
  }
  if (!shared) return;
  if (!from_zero) {
    fail_input(
        "import",
        "pipeline stages hold the same layers, but not every stage numbers its layers "
        "from 0; this layout is not known");
  }
  int64_t offset = 0;
  for (size_t stage = 0; stage < ranks.size(); ++stage) {
    for (NamedTensors& rank : ranks[stage]) {
      for (auto& [name, tensor] : rank) name = renumbered(name, offset);
    }
    offset += counts[stage];
  }
}

class Merger {
 public:
  Merger(const ForeignFiles& files, const families::Network& network,
         const MergeOptions& options, MergeReport& report)
      : files_(files),
        network_(network),
        head_dim_(head_dim_of(network)),
        options_(options),
        report_(report),
        heads_(files, network, options, report) {}

  std::map<std::string, Mosaic> run(const std::vector<std::vector<NamedTensors>>& ranks) {
    for (const auto& stage : ranks) merge_stage(stage);
    return std::move(result_);
  }

 private:
  void merge_stage(const std::vector<NamedTensors>& ranks) {
    std::vector<std::map<std::string, const Mosaic*>> by_name(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      for (const auto& [name, tensor] : ranks[r]) by_name[r][name] = &tensor;
      if (r > 0 && by_name[r].size() != by_name[0].size()) {
        fail_input("import", "tensor-parallel rank {} has {} tensors, but rank 0 has {}",
                   r, by_name[r].size(), by_name[0].size());
      }
    }
    for (const auto& [name, first] : ranks.front()) {
      std::vector<Mosaic> parts;
      for (size_t r = 0; r < ranks.size(); ++r) {
        const auto found = by_name[r].find(name);
        if (found == by_name[r].end()) {
          fail_input("import", "tensor-parallel rank {} has no '{}'", r, name);
        }
        parts.push_back(*found->second);
      }
      merge_tensor(name, parts);
    }
  }

  void merge_tensor(const std::string& name, const std::vector<Mosaic>& parts) {
    const auto ends = [&](std::string_view end) { return name.ends_with(end); };
    const auto sibling = [&](std::string_view end, std::string_view other) {
      return name.substr(0, name.size() - end.size()) + std::string(other);
    };
    if (ends("gate_up_proj.weight")) {
      emit(sibling("gate_up_proj.weight", "gate_proj.weight"), halves(parts, 0, name));
      emit(sibling("gate_up_proj.weight", "up_proj.weight"), halves(parts, 1, name));
    } else if (ends("embed_tokens.weight") || ends("lm_head.weight") ||
               ends("gate_proj.weight") || ends("up_proj.weight")) {
      emit(name, Mosaic::concatenate(parts, 0, name));
    } else if (ends(".query_key_value.weight")) {
      emit_fused(parts, name, sibling("query_key_value.weight", ""), true);
    } else if (ends(".key_value.weight")) {
      emit_fused(parts, name, sibling("key_value.weight", ""), false);
    } else if (ends(".weight_qkv")) {
      emit_qkv(parts, name, sibling("qkv_proj.weight_qkv", ""));
    } else if (ends("qkv_proj.weight")) {
      emit_qkv(parts, name, sibling("qkv_proj.weight", ""));
    } else if (ends("qkv_proj.weight_q")) {
      emit(sibling("qkv_proj.weight_q", "q_proj.weight"), heads_.query(parts, 0, name));
    } else if (ends("qkv_proj.weight_k")) {
      emit(sibling("qkv_proj.weight_k", "k_proj.weight"), heads_.key(parts, name));
    } else if (ends("qkv_proj.weight_v")) {
      emit(sibling("qkv_proj.weight_v", "v_proj.weight"), heads_.key(parts, name));
    } else if (ends("q_proj.weight")) {
      emit(name, heads_.query(parts, 0, name));
    } else if (ends("k_proj.weight") || ends("v_proj.weight")) {
      emit(name, heads_.key(parts, name));
    } else if (ends("o_proj.weight")) {
      emit(name, heads_.query(parts, 1, name));
    } else if (ends("down_proj.weight")) {
      emit(name, Mosaic::concatenate(parts, 1, name));
    } else if (ends("norm.weight")) {
      compare(parts);
      emit(name, parts.front());
    } else {
      fail_input("import", "the tensor '{:.100}' {} belongs to no Llama that is known",
                 name, format::describe_shape(parts.front().shape()));
    }
  }

  // Returns one of two matrices. Each rank's tensor has its part of both, one on top of
  // the other.
  static Mosaic halves(const std::vector<Mosaic>& parts, int64_t which,
                       const std::string& name) {
    std::vector<Mosaic> rows;
    for (const Mosaic& part : parts) {
      if (part.shape().size() != 2 || part.shape()[0] % 2 != 0) {
        fail_input("import", "{}: shape {} is not two matrices, one on top of the other",
                   name, format::describe_shape(part.shape()));
      }
      const int64_t half = part.shape()[0] / 2;
      rows.push_back(part.narrow(0, which * half, (which + 1) * half));
    }
    return Mosaic::concatenate(rows, 0, name);
  }

  // Checks that the rows are those of q and m times those of k and v, for some m that
  // divides the query heads.
  void check_qkv_rows(const std::vector<Mosaic>& parts, const std::string& name) const {
    const auto ranks = static_cast<int64_t>(parts.size());
    const int64_t heads = network_.query_heads;
    const int64_t keys = network_.key_heads;
    const Mosaic& first = parts.front();
    const int64_t rows = first.shape().size() == 2 ? first.shape()[0] * ranks : 0;
    const int64_t copies = rows - heads * head_dim_;
    const int64_t unit = 2 * keys * head_dim_;
    const bool even = std::all_of(parts.begin(), parts.end(), [&](const Mosaic& part) {
      return part.shape() == first.shape();
    });
    if (even && copies > 0 && copies % unit == 0 && heads % (copies / unit * keys) == 0 &&
        heads % ranks == 0) {
      return;
    }
    fail_input(
        "import",
        "{}: shape {} on rank 0 of {} is not a share of {} query rows and m times {} key "
        "and value rows (kv_size_multiplier m, by config.json). NxD's converter for trn1 "
        "loses query heads where tp is not the key heads times m. Shard the model again "
        "with tp {} * m, or import the Hugging Face files",
        name, format::describe_shape(first.shape()), ranks, heads * head_dim_, unit,
        keys);
  }

  // Splits the parts of q, k and v that each rank stacks: whole heads, k and v with their
  // copies. (NxD's converter assumes parts of equal size, which is true if each key head
  // has a copy for every query head that uses it.)
  void emit_qkv(const std::vector<Mosaic>& parts, const std::string& name,
                const std::string& prefix) {
    check_qkv_rows(parts, name);
    std::vector<Mosaic> split[3];
    const int64_t query =
        network_.query_heads * head_dim_ / static_cast<int64_t>(parts.size());
    for (const Mosaic& part : parts) {
      const int64_t rest = part.shape()[0] - query;
      split[0].push_back(part.narrow(0, 0, query));
      split[1].push_back(part.narrow(0, query, query + rest / 2));
      split[2].push_back(part.narrow(0, query + rest / 2, query + rest));
    }
    // Keys come first because they tell the order of the heads.
    emit(prefix + "k_proj.weight", heads_.key(split[1], name));
    emit(prefix + "v_proj.weight", heads_.key(split[2], name));
    emit(prefix + "q_proj.weight", heads_.query(split[0], 0, name));
  }

  /// Splits what Megatron's names hold in one tensor: keys and values, and with
  /// `queries` the queries before them.
  void emit_fused(const std::vector<Mosaic>& parts, const std::string& name,
                  const std::string& prefix, bool queries) {
    if (!options_.fused_rows) {
      fail_input("import",
                 "{}: the file does not tell how the rows of its matrices lie; give "
                 "--query-key-value blocks (one matrix after another, as NxD's converter "
                 "writes them) or heads (head by head, as NxD-training trains them)",
                 name);
    }
    if (queries && *options_.fused_rows == FusedRows::Blocks) {
      return emit_qkv(parts, name, prefix);
    }
    if (queries && network_.query_heads != network_.key_heads) {
      fail_input("import",
                 "{}: head by head there are as many query heads as key heads, and "
                 "config.json has {} and {}; give --query-key-value blocks",
                 name, network_.query_heads, network_.key_heads);
    }
    const int64_t matrices = queries ? 3 : 2;
    // Keys come first because they tell the order of the heads.
    emit(prefix + "k_proj.weight",
         heads_.key(one_of(parts, matrices - 2, matrices, name), name));
    emit(prefix + "v_proj.weight",
         heads_.key(one_of(parts, matrices - 1, matrices, name), name));
    if (queries) {
      emit(prefix + "q_proj.weight",
           heads_.query(one_of(parts, 0, matrices, name), 0, name));
    }
  }

  /// Returns one of several matrices of equal size that each rank's part holds.
  std::vector<Mosaic> one_of(const std::vector<Mosaic>& parts, int64_t which,
                             int64_t matrices, const std::string& name) const {
    std::vector<Mosaic> found;
    for (const Mosaic& part : parts) {
      const int64_t rows = part.shape().size() == 2 ? part.shape()[0] : 0;
      if (rows == 0 || rows % (matrices * head_dim_) != 0) {
        fail_input("import", "{}: shape {} is not {} matrices of whole heads of {} rows",
                   name, format::describe_shape(part.shape()), matrices, head_dim_);
      }
      const bool blocks = *options_.fused_rows == FusedRows::Blocks;
      const int64_t each = blocks ? rows / matrices : head_dim_;
      std::vector<Mosaic> pieces;
      for (int64_t row = which * each; row < rows; row += matrices * each) {
        pieces.push_back(part.narrow(0, row, row + each));
      }
      found.push_back(Mosaic::concatenate(pieces, 0, name));
    }
    return found;
  }

  void compare(const std::vector<Mosaic>& parts) {
    for (size_t r = 1; options_.compare_copies && r < parts.size(); ++r) {
      report_.count_copy(count_differences(files_, parts[0], parts[r]));
    }
  }

  // Keeps a tensor once, even if two stages hold it (a tied embedding).
  void emit(const std::string& name, const Mosaic& tensor) {
    if (std::get<families::LanguageHead>(network_.head).tied &&
        name == "lm_head.weight") {
      const auto embedding = result_.find("model.embed_tokens.weight");
      if (embedding != result_.end()) compare({embedding->second, tensor});
      return;
    }
    const auto [found, added] = result_.try_emplace(name, tensor);
    if (!added) compare({found->second, tensor});
  }

  const ForeignFiles& files_;
  const families::Network& network_;
  const int64_t head_dim_;
  const MergeOptions& options_;
  MergeReport& report_;
  KvHeads heads_;
  std::map<std::string, Mosaic> result_;
};

}  // namespace

const char* kv_order_name(KvOrder order) {
  return order == KvOrder::Tiled ? "tiled" : "repeated";
}

std::optional<int64_t> layer_of(const std::string& name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(kLayers.size());
  const auto layer = take_number<int64_t>(rest);
  const bool good = rest.starts_with('.') && layer >= 0 && layer <= 1'000'000;
  return good ? layer : std::nullopt;
}

std::string strip_wrappers(std::string name) {
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string_view wrapper :
         {"module.", "_orig_mod.", "_fsdp_wrapped_module.", "_forward_module."}) {
      if (name.starts_with(wrapper)) {
        name.erase(0, wrapper.size());
        stripped = true;
      }
    }
  }
  return name;
}

bool is_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".cos_cached") ||
         name.ends_with(".sin_cached") ||
         name.find(".master_weight") != std::string::npos;
}

std::map<std::string, Mosaic> merge_llama(const ForeignFiles& files,
                                          std::vector<std::vector<NamedTensors>> ranks,
                                          const families::Network& network,
                                          const MergeOptions& options,
                                          MergeReport& report) {
  std::set<std::string> ignored;
  for (auto& stage : ranks) {
    for (NamedTensors& rank : stage) {
      NamedTensors kept;
      for (auto& [name, tensor] : rank) {
        std::string plain = nxd_llama_name(strip_wrappers(name));
        if (is_buffer(plain) || tensor.dtype() == format::DType::Bool) {  // masks
          ignored.insert(plain);
        } else {
          kept.emplace_back(std::move(plain), std::move(tensor));
        }
      }
      // Keys come first because they tell the order of the query heads.
      std::stable_partition(kept.begin(), kept.end(), [](const auto& entry) {
        return entry.first.ends_with("weight_k") || entry.first.ends_with("weight_qkv") ||
               entry.first.ends_with("k_proj.weight") ||
               entry.first.ends_with("key_value.weight");
      });
      rank = std::move(kept);
    }
  }
  number_layers(ranks);
  report.ignored.assign(ignored.begin(), ignored.end());
  return Merger(files, network, options, report).run(ranks);
}

}  // namespace longhaul::imports
