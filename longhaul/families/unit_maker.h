#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/families/description.h"
#include "longhaul/families/rms_form.h"

namespace longhaul::families {

/// A result inside a unit's forward, of which an operation may keep something.
struct Feature {
  size_t number = 0;  ///< among the unit's tensors
  int64_t width = 0;
};

/// Makes the description of one unit as its forward runs: each call is an operation. What
/// it has of parameters, multiplications, tensors kept for the backward and edges of
/// split regions follows from it, so that none of them can be forgotten. The order of the
/// calls that have parameters is the order of the parameters.
class UnitMaker {
 public:
  /// `stddev`: of the first values of matrices and tables.
  UnitMaker(UnitKind kind, int64_t layer, double stddev) : stddev_(stddev) {
    unit_.kind = kind;
    unit_.layer = layer;
  }

  /// A tensor that the unit before hands on; called first, in their order.
  Feature input(int64_t width);
  /// Rows that are looked up by token. `padding_row`: of ParameterDescription.
  void table(const std::string& name, int64_t rows, int64_t width,
             std::optional<int64_t> padding_row = {});
  /// A small one, which each rank has whole and looks up outside of split regions.
  void whole_table(const std::string& name, int64_t rows, int64_t width);
  /// The sum of what was looked up, outside of split regions.
  Feature looked_up(int64_t width);
  /// x + the sum of `terms`, all outside of split regions. The backward gives them the
  /// same gradient, which linear layers whose results they are have in common.
  Feature sum(const Feature& x, const std::vector<Feature>& terms);
  /// An operation on x, element by element, that keeps nothing.
  Feature elementwise(const Feature& x);
  /// RMS norm over the width of x, whose features are whole (ops/rms_norm.h). The
  /// weight's first values are 1, or 0 where the form adds 1.
  Feature norm(const std::string& name, const Feature& x,
               RmsForm form = RmsForm::WeightAfterCast);
  /// The same over each head of x, which is split by heads.
  Feature head_norm(const std::string& name, const Feature& x, int64_t head_dim,
                    RmsForm form = RmsForm::WeightAfterCast);
  /// RMS norm over the width of x, whose heads are split over ranks (ops/wide_norm.h).
  Feature wide_norm(const std::string& name, const Feature& x, ShardSplit split);

  /// LayerNorm with a bias over the width of x (ops/layer_norm.h). `split`: of both.
  Feature layer_norm(const std::string& name, const Feature& x,
                     std::optional<ShardSplit> split = {});

  /// Features are split from here on, and no longer after `leave` (nn::ForwardContext).
  void enter() { ++unit_.forward.enters; }
  void leave() { ++unit_.forward.leaves; }
  /// The same, after which the features of x are whole.
  Feature leave(const Feature& x) {
    leave();
    at(x).outside = true;
    return x;
  }

  /// y = x W^T, W [out, width of x] (ops/linear/linear.h). `stddev`: of its first values,
  /// where not the unit's.
  Feature matrix(const std::string& name, int64_t out, const Feature& x, ShardSplit split,
                 std::optional<double> stddev = {});
  void bias(const std::string& name, int64_t width, std::optional<ShardSplit> split);
  /// NAME.weight and, with a bias, NAME.bias, which splits where the rows do. `form`: how
  /// files hold both, but for the ends of the names and that a bias is not transposed.
  Feature stored_linear(const std::string& name, const StoredForm& form, int64_t out,
                        const Feature& x, ShardSplit split, bool with_bias,
                        std::optional<double> stddev = {});
  /// Positions turned into the first `turned` features of each head of x (ops/rope.h).
  Feature rope(const Feature& x, int64_t turned);
  /// Grouped-query attention (ops/attention/attention.h); made again by selective
  /// recomputation.
  Feature attention(const Feature& q, const Feature& k, const Feature& v,
                    int64_t head_dim);
  /// Its attention sees so many positions at most (ops::AttentionMask).
  void window(int64_t positions) { unit_.work.window = positions; }
  /// activation(gate) * up, whatever the activation (ops/gated_product.h); made again by
  /// selective recomputation.
  Feature gated_product(const Feature& gate, const Feature& up);

  /// A token sees what follows it as well.
  void both_ways() { unit_.work.causal = false; }

  /// gelu(up) in any form (nn::GeluFeedForward); made again by selective recomputation.
  Feature gelu(const Feature& up);
  /// The same of what is always kept.
  Feature kept_gelu(const Feature& x);
  Feature tanh(const Feature& x);

  /// Rows of x whose tokens were masked out; x has entered a split region.
  Feature masked_rows(const Feature& x);
  /// The first row of each sequence.
  Feature first_rows(const Feature& x);

  /// The output projection and its loss (ops/loss_head.h).
  void loss_head(const std::string& name, int64_t vocabulary, const Feature& x);
  /// With the matrix of the embedding.
  void tied_loss_head(int64_t vocabulary, const Feature& x);
  /// The loss of logits that are there (ops::cross_entropy).
  void cross_entropy(const Feature& logits);

  /// Of the parameter that was added last: it is an expert's.
  void of_expert() { unit_.parameters.back().expert = true; }
  /// Of the parameter that was added last: Hugging Face's files hold it so.
  void stored_as(StoredForm form) { unit_.parameters.back().stored = std::move(form); }

  /// The parameter that was added last stands behind all others of the unit.
  void stands_last();

  UnitDescription take();

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Init init,
           std::optional<ShardSplit> split) {
    unit_.parameters.push_back({name, std::move(shape), init, split, {}});
  }
  Feature make(KeptTensor tensor, bool again = false);
  KeptTensor& at(const Feature& x) { return unit_.forward.tensors[x.number]; }
  void keep(const Feature& x, KeptKind kind, KeptIn in);
  void keep_rows(KeptKind kind, const Feature& of, int64_t width, KeptIn in);
  Feature norm_of(const std::string& name, const Feature& x, int64_t rows,
                  std::optional<ShardSplit> split, RmsForm form);
  void put_off(KeptTensor tensor);
  Feature rows_of(const Feature& x, KeptRows rows);
  void add_products(double out, const Feature& x);

  double stddev_;
  std::optional<size_t> multiplied_;  ///< what the last matrix is multiplied with
  UnitDescription unit_;
  std::vector<ParameterDescription> last_;  ///< they stand behind all others
  std::map<size_t, size_t> gradients_;      ///< of results of linear layers: in put_off
  std::vector<bool> again_;  ///< of each tensor: selective recomputation makes it again
  std::vector<bool> is_input_;  ///< of each tensor: of a linear layer
};

}  // namespace longhaul::families
