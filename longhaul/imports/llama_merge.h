#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/network.h"
#include "longhaul/imports/foreign_state.h"

namespace longhaul::imports {

/// How key and value heads that are held more than once lie over the ranks of tensor
/// parallelism. With heads A B and two copies: Repeated A A B B, Tiled A B A B.
enum class KvOrder { Repeated, Tiled };
const char* kv_order_name(KvOrder order);

/// What neuronx-distributed made the shards for. Of key heads that lie tiled, trn1's have
/// the query heads (and columns of o_proj) moved to match, trn2's have them in order; by
/// the files alone nobody can tell.
enum class Hardware { Trn1, Trn2 };

struct MergeOptions {
  /// What the user says; else it is found by comparing the copies.
  std::optional<KvOrder> kv_order;
  std::optional<Hardware> hardware;
  /// Compare what several ranks hold. Off for optimizer state.
  bool compare_copies = true;
};

struct MergeReport {
  int64_t kv_multiplier = 1;
  std::optional<KvOrder> kv_order;  ///< of a multiplier above 1
  bool kv_order_found = false;      ///< by comparing, not by being told
  bool queries_moved = false;       ///< query heads stand as trn1 has them
  int64_t copies = 0;               ///< further copies of tensors or heads that were seen
  int64_t differing_copies = 0;
  int64_t differing_elements = 0;
  std::vector<std::string> ignored;  ///< names passed over by rule
};

/// The whole tensors of a Llama from those of every rank, ranks[pp][tp]. Undoes fused
/// projections (qkv_proj.weight_qkv, qkv_proj.weight, gate_up_proj), copies of key heads,
/// their order, and stages that number their layers from 0. InputError names what is
/// missing, unknown or ambiguous. The names are those of its description (a tied head
/// that is stored is kept out); completeness of the list is the caller's to check.
std::map<std::string, Mosaic> merge_llama(const ForeignFiles& files,
                                          std::vector<std::vector<NamedTensors>> ranks,
                                          const families::Network& network,
                                          const MergeOptions& options,
                                          MergeReport& report);

/// "model.layers.3.": the layer's number, or nothing.
std::optional<int64_t> layer_of(const std::string& name);
/// Without what wrappers put before a name ("module.", "_orig_mod.").
std::string strip_wrappers(std::string name);
/// Buffers that are no parameters: rotary tables, kept master copies.
bool is_buffer(const std::string& name);

}  // namespace longhaul::imports
