#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "longhaul/families/layers/attention.h"
#include "longhaul/families/layers/bert_head.h"
#include "longhaul/families/layers/embedding.h"
#include "longhaul/families/layers/experts.h"
#include "longhaul/families/layers/feed_forward.h"
#include "longhaul/families/layers/language_head.h"

namespace longhaul::families {

// The forward pass of a model as data, with three readers: describe() makes the model's
// description (families/describe.h), models::Model computes it, and models::SourceModel
// evaluates it straight from the source's files. A kind of layer has one name in the
// folders of all three: families/layers, nn and models/source. Names of layers are whole
// names; a layer called NAME has the parameters NAME.weight and NAME.bias.

/// A kind of layer is a struct in families/layers, with a function that adds it to a
/// description. Each reader of a network decides about every kind by name (see by_kind).
using Core = std::variant<Attention, FeedForward, Experts>;

/// A branch of a block: scale * drop(after(core(before(x)))).
struct Branch {
  std::optional<Norm> before = {};
  Core core;
  std::optional<Norm> after = {};
  double dropout = 0.0;
  double scale = 1.0;
  bool operator==(const Branch&) const = default;
};

/// A step of a block: x = of_stream(x + the sum of all branches of x).
struct Step {
  std::vector<Branch> branches;
  std::optional<Norm> of_stream = {};
  bool operator==(const Step&) const = default;
};

/// A block: its steps run one after the other.
using Block = std::vector<Step>;

struct Network {
  int64_t width = 0;  ///< width of hidden states
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  double stddev =
      0.02;  ///< standard deviation of the initial values of matrices and tables
  Embedding embedding;
  std::vector<Block> blocks;
  std::variant<LanguageHead, BertHead> head;
  int64_t max_positions = 0;
  /// The field of config.json that max_positions comes from.
  std::string max_positions_key = "max_position_embeddings";

  /// The weight of the loss that balances experts, and whether config.json asks for this
  /// loss in training.
  double balance = 0.0;
  bool asks_for_balance = false;

  // These three fields become those of the same names in ModelDescription.
  std::string optional_prefix = {};
  std::vector<std::pair<std::string, std::string>> old_endings = {};
  std::vector<std::string> buffers = {};
  bool operator==(const Network&) const = default;
};

template <class... Functions>
struct Overload : Functions... {
  using Functions::operator()...;
};

/// Calls that one of the functions which takes the layer's kind. Callers give one
/// function for each kind, and none that takes every kind. So a program with a new kind
/// compiles only when every caller has a function for it.
template <class Layer, class... Functions>
decltype(auto) by_kind(Layer& layer, Functions... functions) {
  return std::visit(Overload{std::move(functions)...}, layer);
}

/// Returns the block's first attention, or null if the block has none.
const Attention* attention_of(const Block& block);
/// Returns the block's experts, or null if the block has none.
const Experts* experts_of(const Block& block);
/// Returns the largest number of experts of a block; 0 if no block has experts.
int64_t most_experts(const Network& network);
/// Returns whether a block of the network has experts.
inline bool has_experts(const Network& network) { return most_experts(network) > 0; }

}  // namespace longhaul::families
