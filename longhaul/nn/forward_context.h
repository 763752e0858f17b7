#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/experts/routed_rows.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::nn {

/// What attention has kept of the positions that a generation has seen.
struct KvCache {
  /// One for each layer of a stage: tensors [B, capacity, ...].
  std::vector<ops::KeptPositions> layers;
  int64_t first_layer = 0;  ///< the first layer's number in the whole model
  int64_t length = 0;       ///< positions that are filled, the same in every layer

  /// Appends new positions of a layer behind `length`. Returns all positions up to the
  /// last new one; on a device that cannot write into a part of a tensor also those
  /// behind, up to the capacity.
  ops::KeptPositions append(int64_t layer, const ops::KeptPositions& fresh);
};

/// The tensors that blocks and stages hand on, in the order of ModelDescription::passed.
using Tensors = std::vector<at::Tensor>;

/// The sequences that a pass works on: T = rows * seq positions, one sequence after
/// another. Tensors that the data does not have are undefined. On a narrow device, which
/// has no 64-bit numbers (tensor::DeviceLimits), tensors that are said to be int64 are
/// int32, and those that are said to be fp64 are fp32.
struct Batch {
  int64_t rows = 0;
  int64_t seq = 0;
  at::Tensor tokens;     ///< [T] int32
  at::Tensor positions;  ///< [T] int32
  /// int32 [rows, seq]: the first position that each position may attend to. If it is
  /// undefined, each sequence is one document.
  at::Tensor document_start;
  /// int32 [rows, seq]: one past the last position that each position may attend to. If
  /// it is undefined, no position attends to later positions.
  at::Tensor document_end;
  ops::DocumentBounds documents;  ///< of document_start and document_end
  at::Tensor segments;            ///< [T] int32
  at::Tensor real;  ///< fp32 [T], 0 for padding and else 1; undefined: no padding
  /// Numbers for the draws of dropout. `sequences` has each sequence's number in the run,
  /// int64 [rows], and `sequence_of` the number of each token's sequence, int64 [T].
  /// On a narrow device each number is two words, int32 [rows, 2] and [T, 2]
  /// (ops::Dropout).
  /// `index` has the index of each token in its whole sequence, int32 [T].
  at::Tensor sequences, sequence_of, index;
  /// The side that each token belongs to, int64 [T]. Pair p of the batch has the sides 2
  /// p, the chosen one, and 2 p + 1. A token of no pair has twice the number of pairs. If
  /// the tensor is undefined, the data has no pairs.
  at::Tensor sides;
  /// The reference's sums of log-probabilities of the sides, fp64 [pairs, 2]; zeros for a
  /// loss without a reference. On a narrow device pairs without tokens may come last.
  at::Tensor reference;
  Tensors targets;  ///< by term of the loss: int64 [T] or [rows], negative: no target
  /// The numbers of the tokens with a target of term 0, ascending, int64. If undefined,
  /// the numbers are found when needed, for which the host has to wait for a device. On a
  /// device where each shape is compiled, the number of a token without target may follow
  /// several times, so that all batches have equally many.
  at::Tensor target_rows;
};

/// The loss of a pass, by the terms of the model's description. The root of the backward
/// is the sum over terms of scale * sum.
struct Losses {
  /// 1 / denominator of each term in the global batch; 0 on all ranks, or on none.
  std::vector<double> scales;
  /// Weight of the squared log-partition (Chowdhery et al., "PaLM", section 5); 0: off.
  double z_loss = 0.0;
  /// True while a block runs again for its gradients: the terms of the block have been
  /// added before.
  bool again = false;

  Losses() = default;
  explicit Losses(std::vector<double> of_terms)
      : scales(std::move(of_terms)), host_(scales.size(), 0.0) {}
  /// Adds an fp64 scalar to a term, unscaled. A scalar on a device is added there, so
  /// that the host does not wait; all scalars of a step are on one device. On a device
  /// without 64-bit numbers the tensor has any number of fp32 addends, which the host
  /// adds up in fp64 (of_read()).
  void add(size_t term, const at::Tensor& sum);
  /// Returns the sum of each term. Waits for the device.
  std::vector<double> sums() const;
  /// Returns the sums as one fp64 tensor [terms] on the device that the pass runs on; the
  /// host does not wait for the device. A term to which nothing has been added is 0. On a
  /// device without 64-bit numbers the tensor has all addends of all terms in fp32.
  at::Tensor sums_on(at::Device device) const;
  /// Returns the sum of each term from the values of sums_on() that the host has read.
  std::vector<double> of_read(const std::vector<double>& values) const;

 private:
  struct Addends {
    size_t term;
    at::Tensor values;  ///< fp32 [n]
  };
  std::vector<double> host_;      ///< sums of scalars on the CPU
  at::Tensor device_;             ///< fp64 [terms]; undefined: no scalar was on a device
  std::vector<Addends> addends_;  ///< of a device without 64-bit numbers
};

/// A function that replaces ops::attention if keys and values lie on several ranks
/// (context parallelism). q [B, S, Hq, D] and `kept` hold this rank's positions. The
/// start and end of the problem are Batch::document_start and document_end. The result
/// has the shape and dtype of q.
using AttentionCore =
    std::function<at::Tensor(const at::Tensor& q, const ops::KeptPositions& kept,
                             const ops::AttentionProblem& problem, bool fused)>;

/// A part of a layer, the region, with features split over ranks (tensor parallelism,
/// Shoeybi et al., "Megatron-LM"). Outside of the regions the token dim may be split
/// (Korthikanti et al., "Reducing Activation Recomputation", section 4.2). Without a
/// region a layer has all features.
class SplitRegion {
 public:
  virtual ~SplitRegion() = default;
  /// Returns the number of ranks over which a region splits its features (tp).
  virtual int64_t ranks() const = 0;
  /// Returns over how many ranks tokens are split outside of the regions: ranks() with
  /// sequence parallelism, else 1.
  virtual int64_t token_parts() const = 0;
  /// Returns those rows of [T, ...] that belong to this rank's tokens outside of the
  /// regions.
  virtual at::Tensor outside(const at::Tensor& rows) const = 0;
  /// Maps activations [T or this rank's tokens, H] to the input of linear layers [T, H].
  /// The backward sums the gradients of the ranks. Collective.
  virtual ops::LinearInput enter(const at::Tensor& x) const = 0;
  /// Adds up the partial results [T, H] of the ranks and returns [T or this rank's
  /// tokens, H]. It may lie in the memory of `partial`. Collective.
  virtual at::Tensor leave(const at::Tensor& partial) const = 0;
  /// Combines the values of the ranks of a split vocabulary in place: `lse` [R] becomes
  /// the log-sum-exp over the ranks, `picked` [R] the sum. Both are fp32. Collective.
  virtual void combine_loss(at::Tensor& lse, at::Tensor& picked) const = 0;
  /// Adds fp32 sums over features, in place, over the ranks that share the features: for
  /// norms over split features. Collective.
  virtual void sum_features(at::Tensor& sums) const = 0;
};

/// Takes rows to the ranks that have their experts, and back (expert parallelism,
/// Lepikhin et al., "GShard"). Each method, and the backward of its results, is
/// Collective over the ranks that have all experts together.
class ExpertDispatch {
 public:
  /// How many rows go where.
  struct Counts {
    virtual ~Counts() = default;
  };
  using CountsPtr = std::shared_ptr<Counts>;
  /// What an implementation keeps of the rows under way, from send() to back() and for
  /// the backward.
  struct Way {
    virtual ~Way() = default;
  };
  using WayPtr = std::shared_ptr<Way>;
  /// Rows at the ranks of their experts, sorted by expert.
  struct Arrived {
    at::Tensor rows;     ///< [R', H]
    at::Tensor weights;  ///< fp32 [R']
    at::Tensor offsets;  ///< int32 [experts of this rank + 1]
  };

  virtual ~ExpertDispatch() = default;
  /// Begins to tell the ranks how many rows they will get, as soon as the experts of the
  /// tokens are known: `chosen`, int64 [T, k]. The host does not wait.
  virtual CountsPtr announce(const at::Tensor& chosen, int64_t experts) const = 0;
  /// Starts to send rows of x [T, H], with their weights, fp32 [R], to the ranks of their
  /// experts. At the first call with these counts the host waits until it knows them. The
  /// device is given the rows to gather before.
  virtual WayPtr send(const CountsPtr& counts, const at::Tensor& x,
                      const at::Tensor& weights, const ops::RoutedRows& rows,
                      bool fused) const = 0;
  /// Waits for the rows of send().
  virtual Arrived arrive(const WayPtr& way) const = 0;
  /// Returns the experts' results, [R', H], to the ranks and places from which the rows
  /// of send() came: [R, H]. The results are handed over: they are freed when they have
  /// been put into the order in which they leave, if the caller has moved them here.
  virtual at::Tensor back(const WayPtr& way, at::Tensor rows) const = 0;
};

/// What the routers of a step's micro batches have done with this rank's tokens, without
/// padding.
struct RouterLoads {
  /// int64 [layers, E]: the number of tokens sent to each expert. E is the number of
  /// experts of the layer that has most.
  at::Tensor counts;
  at::Tensor entropy;  ///< fp32 [layers]: sum over tokens of the entropy of p
};

/// What the routers of one pass have decided and found.
struct RouterPass {
  /// The experts of each token by layer, int64 [T, k], ascending. A layer that has an
  /// entry takes these experts instead of choosing, so that recomputation keeps the
  /// choice.
  std::map<int64_t, at::Tensor> chosen;
  /// The numbers of rows of these choices by layer, which are announced once.
  std::map<int64_t, ExpertDispatch::CountsPtr> counts;
  int64_t layers = 0;              ///< layers whose sums are in the two tensors below
  at::Tensor shares, probability;  ///< [E]: sums over layers and tokens, for Pooled
};

/// What routers of experts need, alike in every layer.
struct RouterContext {
  const ExpertDispatch* dispatch = nullptr;  ///< null: all experts are here
  BalanceKind balance = BalanceKind::Off;
  size_t balance_term = 0, z_term = 0;  ///< numbers of the two terms of the loss
  /// False if no rank reads the two terms, which are then not computed.
  bool terms_read = true;
  int64_t routers = 0;  ///< layers of the model that have a router
  /// fp32 [layers, E]: the share of tokens that each expert got in the step before, for
  /// BalanceKind::Global.
  at::Tensor shares;
  /// Adds fp32 counts over the ranks that have the other positions of the same sequences;
  /// empty: all positions are here.
  std::function<void(at::Tensor& counts)> sum_sequences;
  int64_t sequence_parts = 1;  ///< number of these ranks
  std::shared_ptr<RouterPass> pass;
  RouterLoads* loads = nullptr;  ///< null: loads are not counted
};

/// What training on pairs needs of a pass, alike in every micro batch.
struct PairContext {
  PreferenceSection settings;
  size_t figures = 0;  ///< the first figure's number among the terms (session/pairs.h)
  /// Adds fp64 sums over the ranks that have the other positions of the same sequences;
  /// empty: all positions are here.
  std::function<void(at::Tensor& sums)> sum_positions;
  /// False on a rank that has the same pairs as another, which counts them.
  bool counts = true;
  /// Gets the sums of log-probabilities of each pass, fp64 [pairs, 2]; may be null.
  Tensors* sums = nullptr;
};

/// What a forward pass needs besides the tensors that the stage before hands on.
/// Activations are [T, features].
struct ForwardContext {
  Batch batch;
  Losses* losses = nullptr;  ///< null if no loss is computed
  bool fused = true;
  ops::WeightGradientsPtr weight_gradients;  ///< null without grad mode
  AttentionCore attention;                   ///< empty: ops::attention
  const SplitRegion* region = nullptr;       ///< null: all features are here
  RouterContext router;
  PairContext pairs;
  /// True if the results of the core of attention and of the feed-forward's activation
  /// are not kept for the backward but computed again (ops/recomputed.h).
  bool selective_recompute = false;
  KvCache* cache = nullptr;
  /// The key of the run for dropout; absent: nothing is dropped (evaluation).
  std::optional<uint64_t> dropout_key;

  /// Calls SplitRegion::enter if there is a region; without one it passes x on. leave()
  /// and outside() do the same with SplitRegion::leave and SplitRegion::outside.
  ops::LinearInput enter(const at::Tensor& x) const {
    return region == nullptr ? ops::LinearInput(x) : region->enter(x);
  }
  at::Tensor leave(const at::Tensor& partial) const {
    return region == nullptr ? partial : region->leave(partial);
  }
  at::Tensor outside(const at::Tensor& rows) const {
    return region == nullptr ? rows : region->outside(rows);
  }
};

}  // namespace longhaul::nn
