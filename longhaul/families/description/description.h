#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/description/kept.h"
#include "longhaul/families/description/losses.h"
#include "longhaul/format/shard_split.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul {

// A family makes the description of what a model consists of, and of what the model
// costs, from config.json alone. Everything that counts, places, loads, checks or cuts a
// model reads the description.

/// How the elements of a parameter are initialised.
struct Init {
  enum class Kind {
    Normal,
    Ones,
    Zeros,
    Uniform,     ///< in [-bound, bound), where `stddev` holds the bound
    RowLengths,  ///< the lengths of the rows of the weight of the same layer
  };
  Kind kind = Kind::Normal;
  double stddev = 0.02;
};

/// How Hugging Face's files hold a parameter in another form than the program: as rows of
/// a tensor that several parameters share, or transposed, or both. Rows and columns are
/// those of the parameter's orientation; a vector has one column.
struct StoredForm {
  std::string name;         ///< name of the stored tensor
  bool transposed = false;  ///< stored as [columns, rows]
  int64_t rows = 0;         ///< rows of the whole stored tensor
  /// Row r of the parameter is row (r / block) * period + first + r % block of the stored
  /// tensor.
  int64_t first = 0;
  int64_t block = 0;
  int64_t period = 0;
  /// If above 0, the rows are those of so many equal matrices: the stored tensor has the
  /// shape [matrices, rows / matrices, columns], and a block lies in one matrix.
  int64_t matrices = 0;
  /// Column c of the parameter is column c * column_period + first_column of the stored
  /// tensor, which has column_period times as many columns.
  int64_t first_column = 0;
  int64_t column_period = 1;

  int64_t row(int64_t r) const { return r / block * period + first + r % block; }
  /// Returns the whole stored tensor, which holds a parameter of this shape.
  format::TensorSlice whole(std::vector<int64_t> shape) const;
  bool operator==(const StoredForm&) const = default;
};

/// The expert that a parameter belongs to, and the number of experts of its layer.
struct ExpertNumber {
  int64_t index = 0;
  int64_t of = 0;
  bool operator==(const ExpertNumber&) const = default;
};

struct ParameterDescription {
  std::string name;  ///< the name in Hugging Face's files, if `stored` is absent
  std::vector<int64_t> shape;
  Init init;
  /// How the parameter splits over the ranks of tensor parallelism. The split is
  /// absent if each rank holds the whole parameter and uses it where features are not
  /// split.
  std::optional<format::ShardSplit> split;
  std::optional<StoredForm> stored = {};
  bool decays = true;  ///< false for norms and biases, which get no weight decay
  /// False for the base of an adapter, which is never updated. Its values come from
  /// init.weights at every start, so that no checkpoint holds them.
  bool trained = true;
  /// Set for a parameter of an expert, which some data ranks have and others do not.
  std::optional<ExpertNumber> expert = {};
  /// The matrix has the same input as the matrix before it. If possible, both lie side by
  /// side in memory, so that one product computes the results of both.
  bool joint = false;
  /// The row of an embedding's table whose look-ups have no gradient and whose initial
  /// values are zeros (padding_idx of torch's Embedding). A head that is tied to the
  /// table trains the row.
  std::optional<int64_t> padding_row = {};
  /// Another form in which files may hold the parameter instead. A model's files are
  /// never written in this form; those of an adapter always are.
  std::optional<StoredForm> other_form = {};

  int64_t num_elements() const;
  /// Returns the size of the dim that splits, for a parameter with a split.
  int64_t split_size() const { return shape[static_cast<size_t>(split->dim)]; }
  format::TensorSlice whole() const;
  /// Returns the whole stored tensor that holds the parameter.
  format::TensorSlice stored_whole() const;
};

enum class UnitKind { Embedding, Block, Head };

/// Multiplications of a unit's forward pass for each token.
struct UnitWork {
  double products = 0.0;  ///< products with weights that all tokens use
  /// Products with the weights of the experts that the token is sent to. One grouped
  /// product computes them for all experts.
  double grouped = 0.0;
  double attention = 0.0;  ///< scores and values, for each position that the token sees
  /// Positions that the token sees at most, its own included.
  int64_t window = int64_t{1} << 62;
  double lookups = 0.0;  ///< features that are fetched from a table; no multiplications
  /// The part of all_products() whose weights have no gradient, as beside an adapter.
  double frozen = 0.0;
  double of_sequence = 0.0;  ///< products for each sequence instead of each token
  /// Elements of the parameters that a token does not use: those of the experts that the
  /// token is not sent to.
  double unused = 0.0;
  bool causal = true;  ///< false if a token also sees the tokens behind it
  /// Returns the products with all weights for each token.
  double all_products() const { return products + grouped; }
  bool operator==(const UnitWork&) const = default;
};

/// Parameters that a forward pass uses together, gathered and released at once.
struct UnitDescription {
  UnitKind kind = UnitKind::Block;
  int64_t layer = 0;  ///< number of a block in the whole model
  std::vector<ParameterDescription> parameters;
  UnitWork work;
  UnitForward forward;  ///< what the forward pass keeps, and where ranks communicate

  int64_t num_parameters() const;
  /// Returns whether the unit has layers whose gradients the backward pass forms. A head
  /// may have none: the gradients of the output projection are formed in the forward
  /// pass.
  bool has_layers() const { return !forward.put_off.empty(); }
};

/// An output projection that shares its matrix with the embedding.
struct TiedHead {
  std::string embedding;  ///< name of the parameter, which is the first unit's
  std::string head;       ///< name under which files may hold the matrix a second time
};

/// The part of a model that a pipeline stage holds. Without a pipeline, one stage holds
/// the whole model.
struct StageSpec {
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  bool embedding = true;
  bool head = true;
};

bool is_in_stage(const UnitDescription& unit, const StageSpec& spec);

/// Floating point operations of training per token. Each multiplication of the forward
/// pass comes with an addition, and the backward pass does both twice. `full` counts as
/// if a token saw the whole sequence, or a whole window; `causal` counts only the
/// positions up to the token.
struct FlopsPerToken {
  double full = 0.0;
  double causal = 0.0;
  double products = 0.0;  ///< the part of both that is not attention
};

/// A tensor that units and stages hand on, [tokens, width] in the compute dtype.
struct PassedTensor {
  std::string name;
  int64_t width = 0;
};

struct ModelDescription {
  /// Units in forward order: embedding, blocks, head. Each parameter stands there once.
  std::vector<UnitDescription> units;
  std::optional<TiedHead> tied;
  /// The tensors between units, hidden states first.
  std::vector<PassedTensor> passed;
  /// Terms of the loss. Terms with targets come first, in the order of the data.
  std::vector<LossTerm> losses = {{kNextToken}};
  /// Whether some parameters are the base of an adapter (ParameterDescription::trained).
  bool has_base = false;
  bool drops = false;  ///< has dropout, for which training needs the sequences' numbers
  int64_t max_positions = 0;  ///< the most positions of a sequence
  /// A prefix that stored names begin with, except the tied head's. Older files leave the
  /// prefix out.
  std::string optional_prefix;
  /// Ends of names in files of other versions, each with the end that replaces it.
  std::vector<std::pair<std::string, std::string>> old_endings;
  /// Tensors that files of older versions may hold beside parameters.
  std::vector<std::string> buffers;

  int64_t num_blocks() const;
  /// Returns a range over the parameters of all units, in forward order.
  auto parameters() const {
    return units | std::views::transform(&UnitDescription::parameters) | std::views::join;
  }
  /// Returns the terms of the loss that the data has targets for.
  std::vector<std::string> losses_with_targets() const;
  /// Returns the padding row of the embedding's table, if the table has one.
  std::optional<int64_t> padding_row() const;
  /// Returns whether no token sees the tokens behind it, so that text can be continued.
  bool is_causal() const;
  /// Returns the width of the hidden states.
  int64_t features() const { return passed.front().width; }
  /// Returns the number of elements of all parameters. The second function leaves out the
  /// embedding's tables, one of which may be the head's matrix too.
  int64_t num_parameters() const;
  int64_t num_parameters_without_embedding() const;
  /// Returns the number of elements that a token uses: those of all parameters without
  /// those of the experts that the token is not sent to.
  int64_t num_active_parameters() const;
  /// Returns num_parameters() for a person, with num_active_parameters() if a token
  /// does not use all: "30,532,122,624 parameters, 3,353,032,704 of them active for a
  /// token".
  std::string parameters_text() const;
  /// Returns every parameter as a whole tensor, in forward order.
  std::vector<format::TensorSlice> tensors() const;
  /// Returns the tensors of a checkpoint: tensors() without the base of an adapter.
  std::vector<format::TensorSlice> saved_tensors() const;
  std::vector<std::string> names() const;
  /// Returns the tensors of Hugging Face's files, each once.
  std::vector<format::TensorSlice> stored_tensors() const;
  /// Returns further names that files may hold: a tied head's, and those of buffers.
  std::vector<std::string> spare_names() const;

  StageSpec whole() const;
  /// Returns the units of a stage, with tied_copy() as the head's last parameter.
  std::vector<UnitDescription> stage(const StageSpec& spec) const;
  /// Returns the embedding that the head of a stage is tied to, if the embedding is on
  /// another stage; else null. The head has a copy of it as its last parameter.
  const ParameterDescription* tied_copy(const StageSpec& spec) const;

  FlopsPerToken flops_per_token(int64_t seq_len) const;
};

/// Returns how many positions a token sees, as the average over a sequence. Without
/// causal attention a token sees all. With it a token sees those up to its own that lie
/// in its window, which are half of all on average if the window is as long as the
/// sequence.
double seen_on_average(const UnitWork& work, int64_t seq_len);

/// Returns the multiplications and lookups of a unit's forward pass per token, with
/// causal attention: the time of a pipeline stage grows with this number.
double forward_cost(const UnitDescription& unit, int64_t seq_len);

/// Throws Error (Internal) if the description contradicts itself:
/// - units are out of order, or a unit has no work;
/// - a name is missing or repeated;
/// - nothing is handed on, or the loss has no target;
/// - a shape is empty or negative, a split names a missing dim, or heads do not divide;
/// - a unit does not say what it keeps, or where its split features begin and end;
/// - a head has no logits;
/// - the parameters do not cover the stored tensors exactly once.
void check_description(const ModelDescription& model);

}  // namespace longhaul
