#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "longhaul/families/activation.h"
#include "longhaul/families/description.h"
#include "longhaul/families/rms_form.h"
#include "longhaul/families/rope.h"

namespace longhaul::families {

// The forward pass of a model as data, with three readers: describe() makes the model's
// description (families/describe.h), models::Model computes it, and models::SourceModel
// evaluates it straight from the source's files. Names of layers are whole names; a layer
// called NAME has the parameters NAME.weight and NAME.bias.

/// A norm over the width of its input.
struct Norm {
  enum class Kind {
    Rms,    ///< with a weight (ops/rms_norm.h)
    Layer,  ///< with a weight and a bias (ops/layer_norm.h)
  };
  Kind kind = Kind::Rms;
  std::string name;
  double eps = 0.0;
  RmsForm form = RmsForm::WeightAfterCast;  ///< used by an RMS norm only
  bool operator==(const Norm&) const = default;
};

/// A linear layer y = x W^T + bias, with W [out, width of x]; the bias is optional.
struct Projection {
  std::string name;
  int64_t out = 0;
  bool bias = false;
  /// How files hold the weight and the bias, without the ends of the names; a bias is not
  /// transposed. Absent if files hold both under these names and in this form.
  std::optional<StoredForm> stored = {};
  /// Standard deviation of the first values, if it differs from Network::stddev.
  std::optional<double> stddev = {};
  bool operator==(const Projection&) const = default;
};

/// A rotary position embedding of the first `features` features of each head.
struct Rotation {
  RopeConfig rope;
  int64_t features = 0;
  bool operator==(const Rotation&) const = default;
};

/// Grouped-query self-attention.
struct Attention {
  Projection query, key, value, out;
  int64_t head_dim = 0;
  std::optional<Rotation> rotation = {};
  /// RMS norms of queries and of keys before the rotation; both or none are there. Both
  /// norm each head, or both norm all heads together (ops/wide_norm.h).
  std::optional<Norm> query_norm = {}, key_norm = {};
  bool norms_over_all_heads = false;
  /// The factor of the scores; absent: one over the square root of head_dim.
  std::optional<double> scale = {};
  /// Positions that a token sees at most, its own included.
  std::optional<int64_t> window = {};
  bool causal = true;    ///< false if a token also sees the tokens behind it
  double dropout = 0.0;  ///< dropout of the probabilities
  /// In the order of the block's parameters, the biases of queries, keys and values and
  /// the norms of heads come last.
  bool extras_last = false;
  bool operator==(const Attention&) const = default;
};

/// A feed-forward: down(act(gate x) * up x), or down(act(up x)) without a gate.
struct FeedForward {
  std::optional<Projection> gate = {};
  Projection up, down;
  Activation activation = Activation::Silu;
  bool operator==(const FeedForward&) const = default;
};

/// A mixture of experts, of which each token is sent to `top_k`:
///   p = softmax(router x), over all experts, in fp32
///   y = sum over the top_k experts e with the largest p of w_e * expert_e(x), plus
///       shared(x) where there is a shared expert,
/// with w = p, or with `normalised` p over the sum of the chosen p. Experts are gated
/// feed-forwards without biases and of equal sizes (Shazeer et al. 2017, arXiv
/// 1701.06538; Fedus et al. 2021, arXiv 2101.03961).
struct Experts {
  Projection router;  ///< out: the number of experts
  std::vector<FeedForward> experts;
  int64_t top_k = 1;
  bool normalised = true;
  std::optional<FeedForward> shared = {};
  /// Files may hold all experts together instead: FUSED.gate_up_proj [experts, 2 inner,
  /// width], with an expert's gate before its up, and FUSED.down_proj [experts, width,
  /// inner]. The name is empty if no files do.
  std::string fused = {};
  bool operator==(const Experts&) const = default;
};

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

/// A table whose rows are looked up.
struct Table {
  std::string name;
  int64_t rows = 0;
  bool operator==(const Table&) const = default;
};

/// The embedding drop(norm(scale * tokens + positions + types)); only tokens are
/// required.
struct Embedding {
  Table tokens;
  std::optional<int64_t> padding_row = {};  ///< see ParameterDescription::padding_row
  std::optional<Table> positions = {};
  std::optional<Table> types = {};  ///< looked up by Batch::segments
  std::optional<Norm> norm = {};
  double dropout = 0.0;
  double scale = 1.0;
  bool rounds_scale = false;  ///< the scale is rounded to the compute dtype first
  bool operator==(const Embedding&) const = default;
};

/// The head that predicts each position's next token:
/// logits = projection(norm(x)) / logits_divisor.
struct LanguageHead {
  Norm norm;
  std::string name;   ///< name of the projection
  bool tied = false;  ///< the projection is the embedding's table of tokens
  double logits_divisor = 1.0;
  bool operator==(const LanguageHead&) const = default;
};

/// BERT's head, which predicts the masked tokens and, with `next_sentence`, whether a
/// sequence's second text follows its first (families/bert_head.h).
struct BertHead {
  Activation activation = Activation::GeluExact;
  double eps = 1e-12;
  bool next_sentence = true;
  bool operator==(const BertHead&) const = default;
};

struct Network {
  int64_t width = 0;  ///< width of hidden states
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  double stddev =
      0.02;  ///< standard deviation of the first values of matrices and tables
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

  // See ModelDescription.
  std::string optional_prefix = {};
  std::vector<std::pair<std::string, std::string>> old_endings = {};
  std::vector<std::string> buffers = {};
  bool operator==(const Network&) const = default;
};

/// Returns the attention with which the first block begins. Throws if the block begins
/// with something else.
const Attention& first_attention(const Network& network);
/// Returns the block's experts, or null if the block has none.
const Experts* experts_of(const Block& block);
/// Returns the experts of the first block that has some, or null if no block has any.
const Experts* first_experts(const Network& network);
/// Returns whether a block of the network has experts.
bool has_experts(const Network& network);

}  // namespace longhaul::families
