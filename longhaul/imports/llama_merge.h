#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/network.h"
#include "longhaul/imports/foreign_state.h"

namespace longhaul::imports {

/// How repeated key and value heads lie over the ranks of tensor parallelism. With heads
/// A B and two copies, Repeated is A A B B and Tiled is A B A B.
enum class KvOrder { Repeated, Tiled };
const char* kv_order_name(KvOrder order);

/// The hardware for which neuronx-distributed made the shards. With tiled key heads,
/// shards for trn1 have the query heads (and columns of o_proj) moved to match, and
/// shards for trn2 have query heads in order; the files alone do not tell which.
enum class Hardware { Trn1, Trn2 };

/// How the rows of queries, keys and values lie in one tensor of Megatron's names
/// (query_key_value, key_value) on a rank: one matrix after another, or those of each
/// head together. The files alone do not tell which.
enum class FusedRows { Blocks, Heads };

struct MergeOptions {
  /// The order of the copies that the user names. If it is absent, it is found by
  /// comparing the copies.
  std::optional<KvOrder> kv_order;
  std::optional<Hardware> hardware;
  std::optional<FusedRows> fused_rows;
  /// Compare tensors that several ranks hold; false for optimizer state.
  bool compare_copies = true;
};

struct MergeReport {
  int64_t kv_multiplier = 1;
  std::optional<KvOrder> kv_order;  ///< given if the multiplier is above 1
  bool kv_order_found = false;      ///< the order was found by comparing copies
  bool queries_moved = false;       ///< query heads lie as in shards for trn1
  int64_t copies = 0;               ///< further copies of tensors or heads that were seen
  int64_t differing_copies = 0;
  int64_t differing_elements = 0;
  std::vector<std::string> ignored;  ///< names that were skipped by a rule

  /// Counts a further copy of a tensor or head, with the elements in which the copy
  /// differs from the first.
  void count_copy(int64_t differences) {
    ++copies;
    if (differences > 0) ++differing_copies;
    differing_elements += differences;
  }
};

/// Makes the whole tensors of a Llama from the tensors of every rank, ranks[pp][tp].
/// Undoes fused projections (qkv_proj.weight_qkv, qkv_proj.weight, gate_up_proj), copies
/// of key heads, their order, Megatron's names, and stages that number their layers from
/// 0. Throws InputError that names what is missing, unknown or ambiguous. The names are
/// those of the model's description; a stored tied head is left out. The caller checks
/// that all tensors are there.
std::map<std::string, Mosaic> merge_llama(const ForeignFiles& files,
                                          std::vector<std::vector<NamedTensors>> ranks,
                                          const families::Network& network,
                                          const MergeOptions& options,
                                          MergeReport& report);

/// Returns the layer's number in a name such as "model.layers.3.", or nothing.
std::optional<int64_t> layer_of(const std::string& name);
/// Returns the name without the prefixes of wrappers ("module.", "_orig_mod.").
std::string strip_wrappers(std::string name);
/// Returns whether the name is a buffer's: rotary tables and kept master copies.
bool is_buffer(const std::string& name);

}  // namespace longhaul::imports
