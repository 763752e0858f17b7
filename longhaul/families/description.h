#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/kept.h"
#include "longhaul/families/losses.h"
#include "longhaul/format/shard_plan.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul {

// What a model consists of and what it costs, as its family makes it from config.json
// alone. Everything that counts, places, loads, checks or cuts a model reads this.

/// How a parameter gets its first value.
struct Init {
  enum class Kind { Normal, Ones, Zeros };
  Kind kind = Kind::Normal;
  double stddev = 0.02;
};

/// How Hugging Face's files hold a parameter that they do not hold as it is here: rows of
/// a tensor that several share, or transposed, or both. Rows and columns are those of the
/// parameter's orientation; a vector has one column.
struct StoredForm {
  std::string name;         ///< of the stored tensor
  bool transposed = false;  ///< stored as [columns, rows]
  int64_t rows = 0;         ///< of the stored tensor, its owners' together
  /// Row r lies at (r / block) * period + first + r % block there.
  int64_t first = 0;
  int64_t block = 0;
  int64_t period = 0;

  int64_t row(int64_t r) const { return r / block * period + first + r % block; }
  bool operator==(const StoredForm&) const = default;
};

struct ParameterDescription {
  std::string name;  ///< that of the Hugging Face checkpoint, where `stored` is absent
  std::vector<int64_t> shape;
  Init init;
  /// Over the ranks of tensor parallelism. Nothing: each holds it whole and uses it where
  /// features are whole.
  std::optional<ShardSplit> split;
  std::optional<StoredForm> stored = {};
  bool decays = true;   ///< false: norms and biases, which weight decay leaves alone
  bool expert = false;  ///< shared by the ranks that have this expert, not by all of data
  /// A matrix that is multiplied with what the matrix before it is multiplied with: in
  /// memory both lie side by side where they can, for one product.
  bool joint = false;
  /// The row of an embedding's table whose look-ups have no gradient and whose first
  /// values are zeros (padding_idx of torch's Embedding). A head that is tied to the
  /// table trains the row.
  std::optional<int64_t> padding_row = {};

  int64_t num_elements() const;
  TensorSlice whole() const;
  /// As the files hold it, with what else lies in the same tensor.
  TensorSlice stored_whole() const;
};

enum class UnitKind { Embedding, Block, Head };

/// Multiplications of a unit's forward for each token.
struct UnitWork {
  double products = 0.0;   ///< with its weights
  double attention = 0.0;  ///< for each position that the token sees: scores and values
  /// Positions that the token sees at most, its own the last.
  int64_t window = int64_t{1} << 62;
  double lookups = 0.0;  ///< features that are fetched from a table; no multiplications
  double of_sequence = 0.0;  ///< products for each sequence, not for each token
  bool causal = true;        ///< false: a token sees what follows it as well
};

/// Parameters that a forward pass uses together, gathered and released at once.
struct UnitDescription {
  UnitKind kind = UnitKind::Block;
  int64_t layer = 0;  ///< Block: its number in the whole model
  std::vector<ParameterDescription> parameters;
  UnitWork work;
  UnitForward forward;  ///< what it keeps for its backward, and where ranks meet

  int64_t num_parameters() const;
  /// Of a head: it has layers of its own, whose gradients are formed in the backward as a
  /// block's; those of the output projection are formed in its forward.
  bool has_layers() const { return !forward.put_off.empty(); }
};

/// An output projection that is the embedding.
struct TiedHead {
  std::string embedding;  ///< the parameter, of the first unit
  std::string head;       ///< the name under which files may hold it a second time
};

/// Which part of a model a pipeline stage holds. The trivial stage holds all of it.
struct StageSpec {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  bool embedding = true;
  bool head = true;
};

bool is_in_stage(const UnitDescription& unit, const StageSpec& spec);

/// Floating point operations of training per token, forward and backward: each
/// multiplication of the forward has an addition, and both twice more in the backward.
/// `full` counts every position of the sequence as seen, or as many as a window has;
/// `causal` those before.
struct FlopsPerToken {
  double full = 0.0;
  double causal = 0.0;
  double products = 0.0;  ///< of both: without attention's scores
};

/// What units and stages hand on, [tokens, width] in the compute dtype.
struct PassedTensor {
  std::string name;
  int64_t width = 0;
};

struct ModelDescription {
  /// In forward order: embedding, blocks, head. Each parameter once.
  std::vector<UnitDescription> units;
  std::optional<TiedHead> tied;
  /// Hidden states first.
  std::vector<PassedTensor> passed;
  /// Those with targets first, in the order in which the data has them.
  std::vector<LossTerm> losses = {{kNextToken}};
  bool drops = false;  ///< dropout: training needs the numbers of its sequences
  int64_t query_heads = 0;
  int64_t key_heads = 0;  ///< divides query_heads
  /// That stored names begin with, but for the tied head's; older files leave it out.
  std::string optional_prefix;
  /// Ends of names in older files, each with what it is now.
  std::vector<std::pair<std::string, std::string>> old_endings;
  /// What files may hold beside parameters: tables of older versions.
  std::vector<std::string> buffers;

  int64_t num_blocks() const;
  /// Terms of the loss that the data has targets for.
  std::vector<std::string> losses_with_targets() const;
  /// That of the table which has one.
  std::optional<int64_t> padding_row() const;
  /// No token sees what follows it, so that text can be continued.
  bool is_causal() const;
  /// Width of the hidden states.
  int64_t features() const { return passed.front().width; }
  /// The input embedding alone is what "without" leaves out, where the head has another.
  int64_t num_parameters() const;
  int64_t num_parameters_without_embedding() const;
  /// Every parameter whole, in forward order.
  std::vector<TensorSlice> tensors() const;
  std::vector<std::string> names() const;
  /// Of norms and biases.
  std::set<std::string> names_without_decay() const;
  /// As Hugging Face's files hold them, each once.
  std::vector<TensorSlice> stored_tensors() const;
  /// Names that files may hold beside them: a tied head's, buffers'.
  std::vector<std::string> spare_names() const;

  StageSpec whole() const;
  /// The units of a stage. A head tied to an embedding on another stage has a copy of it
  /// as its last parameter.
  std::vector<UnitDescription> stage(const StageSpec& spec) const;

  FlopsPerToken flops_per_token(int64_t seq_len) const;
};

/// Multiplications and lookups of a unit's forward per token, attention causal: what a
/// pipeline stage's time grows with.
double forward_cost(const UnitDescription& unit, int64_t seq_len);

/// Internal error where the description contradicts itself: units out of order, a name
/// twice or none, nothing that is handed on, no target, a shape that is empty or
/// negative, a split of a dim that is not there, heads that do not divide, work of no
/// unit, a unit that says nothing of what it keeps or of where its split features begin
/// and end, a head without logits, parameters that do not tile what the files hold.
void check_description(const ModelDescription& model);

}  // namespace longhaul
