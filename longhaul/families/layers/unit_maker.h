#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/families/layers/rms_form.h"

namespace longhaul::families {

struct LowRank;

/// A result inside a unit's forward pass, which operations take and may keep.
struct Feature {
  size_t number = 0;  ///< number among the unit's tensors
  int64_t width = 0;
};

/// Makes the description of one unit. Each call stands for an operation of the forward
/// pass, in order, and adds the operation's parameters, multiplications, kept tensors and
/// splits of features, so that none of these can be forgotten. The order of the calls
/// with parameters is the order of the parameters.
class UnitMaker {
 public:
  /// `stddev` is the standard deviation of the initial values of matrices and tables.
  UnitMaker(UnitKind kind, int64_t layer, double stddev) : stddev_(stddev) {
    unit_.kind = kind;
    unit_.layer = layer;
  }

  /// Adds a tensor that the unit before hands on. These calls come first.
  Feature input(int64_t width);
  /// Adds a table whose rows are looked up by token. See ParameterDescription for
  /// `padding_row`.
  void table(const std::string& name, int64_t rows, int64_t width,
             std::optional<int64_t> padding_row = {});
  /// Adds a small table, which each rank holds whole and looks up where features are
  /// whole.
  void whole_table(const std::string& name, int64_t rows, int64_t width);
  /// Returns the sum of the looked-up rows, whose features are whole.
  Feature looked_up(int64_t width);
  /// Returns x plus the sum of `terms`; the features of all are whole. All terms have the
  /// same gradient, which the linear layers that made the terms share.
  Feature sum(const Feature& x, const std::vector<Feature>& terms);
  /// Adds an operation on x, element by element, that keeps nothing.
  Feature elementwise(const Feature& x);
  /// Adds an RMS norm over the width of x, whose features are whole (ops/rms_norm.h). The
  /// weight's initial values are 1, or 0 if the form adds 1.
  Feature norm(const std::string& name, const Feature& x,
               RmsForm form = RmsForm::WeightAfterCast);
  /// Adds an RMS norm over each head of x, which is split by heads.
  Feature head_norm(const std::string& name, const Feature& x, int64_t head_dim,
                    RmsForm form = RmsForm::WeightAfterCast);
  /// Adds an RMS norm over the width of x, whose heads are split over ranks
  /// (ops/wide_norm.h).
  Feature wide_norm(const std::string& name, const Feature& x, format::ShardSplit split);

  /// Adds a LayerNorm with a bias over the width of x (ops/layer_norm.h). `split` is that
  /// of weight and bias.
  Feature layer_norm(const std::string& name, const Feature& x,
                     std::optional<format::ShardSplit> split = {});

  /// Features are split between `enter` and `leave` (nn::ForwardContext).
  void enter() { ++unit_.forward.enters; }
  void leave() { ++unit_.forward.leaves; }
  /// Leaves the region and returns x, whose features are whole from here on.
  Feature leave(const Feature& x) {
    leave();
    at(x).outside = true;
    return x;
  }

  /// Adds y = x W^T with W [out, width of x] (ops/linear/linear.h). `stddev` is the
  /// standard deviation of the initial values, if it differs from the unit's.
  Feature matrix(const std::string& name, int64_t out, const Feature& x,
                 format::ShardSplit split, std::optional<double> stddev = {});
  /// Adds the low-rank part of the matrix of layer `name`, which maps x to y. `split` is
  /// that of the matrix. The half that `split` does not split is whole on every rank and
  /// is used where features are split, so that each rank holds a part of its gradient.
  void low_rank(const std::string& name, const LowRank& form, const Feature& x,
                const Feature& y, const format::ShardSplit& split);
  /// Returns the rows of x, whose features are split, once for each of the `top_k`
  /// experts that a token is sent to by the router's `logits`. Keeps the experts'
  /// probabilities, and the numbers and weights of those chosen.
  Feature routed(const Feature& x, const Feature& logits, int64_t top_k, bool normalised);
  /// Names of experts' projections: names[e][i] is that of expert e's number i.
  using ExpertNames = std::vector<std::vector<std::string>>;
  /// Adds the projections of experts, matrices [out, width of x]. x is made by `routed`.
  /// Files may hold all of the matrices in one tensor `fused` instead, in the order of
  /// `names`, unless the name is empty. Returns one feature for each i.
  std::vector<Feature> expert_matrices(const ExpertNames& names, const std::string& fused,
                                       int64_t out, const Feature& x,
                                       format::ShardSplit split);
  /// Adds the low-rank parts of experts' projections [out, width of x], whose `names` are
  /// those of the layers. All projections of an expert have one A, that of number 0. As
  /// for low_rank(), the half that `split` does not split is whole on every rank.
  ///
  /// Files of an adapter hold the parts of all experts in two tensors. The rows of
  /// FUSED.lora_A.weight [experts * rank, width of x] are by expert, then rank. The
  /// columns of FUSED.lora_B.weight [i * out, rank * experts] are by rank, then expert.
  void expert_low_rank(const ExpertNames& names, const std::string& fused,
                       const LowRank& form, int64_t out, const Feature& x,
                       const format::ShardSplit& split);
  /// Adds the sum of each token's rows of x, the rows that `routed` made. The result has
  /// one row per token.
  Feature gathered(const Feature& x);
  void bias(const std::string& name, int64_t width,
            std::optional<format::ShardSplit> split);
  /// Adds a rotary embedding of the first `turned` features of each head of x
  /// (ops/rope.h).
  Feature rope(const Feature& x, int64_t turned);
  /// Adds grouped-query attention (ops/attention/attention.h), which selective
  /// recomputation runs again.
  Feature attention(const Feature& q, const Feature& k, const Feature& v,
                    int64_t head_dim);
  /// Adds activation(gate) * up, for any activation (ops/gated_product.h), which
  /// selective recomputation runs again. `weighed`: each row is multiplied by a weight,
  /// which `routed` has kept.
  Feature gated_product(const Feature& gate, const Feature& up, bool weighed = false);

  /// Says how many positions a token sees at most in the unit's attention, and whether it
  /// sees none behind its own (causal).
  void sees(int64_t positions, bool causal) {
    unit_.work.window = positions;
    unit_.work.causal = causal;
  }

  /// Adds gelu(up) in any form (nn::GeluFeedForward), which selective recomputation runs
  /// again.
  Feature gelu(const Feature& up);
  /// Adds a GELU whose input is always kept.
  Feature kept_gelu(const Feature& x);
  Feature tanh(const Feature& x);

  /// Returns the rows of x whose tokens were masked out. Called where features are split.
  Feature masked_rows(const Feature& x);
  /// Returns the first row of each sequence.
  Feature first_rows(const Feature& x);

  /// Adds the output projection and its loss (ops/loss_head.h).
  void loss_head(const std::string& name, int64_t vocabulary, const Feature& x);
  /// Adds an output projection with the matrix of the embedding, and its loss.
  void tied_loss_head(int64_t vocabulary, const Feature& x);
  /// Says that the logits are bounded before the loss, so that a chunk has both logits
  /// and bounded logits in memory.
  void caps_logits() { unit_.forward.logits_copies = 2; }
  /// Adds the loss of logits that were computed before (ops::cross_entropy).
  void cross_entropy(const Feature& logits);

  /// Marks the parameter that was added last as an expert's.
  void of_expert(ExpertNumber expert) { unit_.parameters.back().expert = expert; }
  /// Says how Hugging Face's files hold the parameter that was added last.
  void stored_as(StoredForm form) { unit_.parameters.back().stored = std::move(form); }

  /// Moves the parameter that was added last behind all others of the unit.
  void stands_last();

  UnitDescription take();

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Init init,
           std::optional<format::ShardSplit> split) {
    unit_.parameters.push_back({name, std::move(shape), init, split, {}});
  }
  Feature make(KeptTensor tensor, bool again = false);
  KeptTensor& at(const Feature& x) { return unit_.forward.tensors[x.number]; }
  void keep(const Feature& x, KeptKind kind, KeptIn in);
  void keep_rows(KeptKind kind, const Feature& of, int64_t width, KeptIn in);
  void add_experts(const ExpertNames& names, const std::vector<int64_t>& shape, Init init,
                   const format::ShardSplit& split, const Feature& x,
                   const std::function<std::optional<StoredForm>(int64_t expert,
                                                                 int64_t number)>& form);
  Feature norm_of(const std::string& name, const Feature& x, int64_t rows,
                  std::optional<format::ShardSplit> split, RmsForm form);
  void put_off(KeptTensor tensor);
  Feature rows_of(const Feature& x, KeptRows rows);
  void add_products(double out, const Feature& x);
  void take_input(const Feature& x);

  double stddev_;
  std::optional<size_t> multiplied_;  ///< the input of the last matrix
  UnitDescription unit_;
  std::vector<ParameterDescription> last_;  ///< parameters that come behind all others
  std::map<size_t, size_t>
      gradients_;               ///< place in put_off of each linear layer's result
  std::vector<bool> again_;     ///< for each tensor, if selective recomputation makes it
  std::vector<bool> is_input_;  ///< for each tensor, if it is the input of a linear layer
};

}  // namespace longhaul::families
