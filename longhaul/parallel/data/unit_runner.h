#pragma once

#include <functional>
#include <utility>

#include "longhaul/layout/unit_plan.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/data/data_parallel.h"

namespace longhaul::parallel {

/// Does what a step's UnitPlan says: gathers, releases and reduces units as their turn
/// comes. A use that the plan does not have next is an internal error, since collectives
/// of other ranks would meet others. `data` must outlive it. Collective: use and close.
class UnitRunner {
 public:
  explicit UnitRunner(DataParallel& data) : data_(data) {}

  /// Told where the forward or the backward of a unit's block begins and ends.
  using Watcher = std::function<void(int unit, bool backward, bool begins)>;
  void set_watcher(Watcher watcher) { watcher_ = std::move(watcher); }

  /// `plan` must stay until its end.
  void begin(const UnitPlan& plan);
  /// The plan has been done to its end, and reductions have ended.
  void end();
  /// Forgets what a failed step has left behind.
  void abandon();

  /// Before and after the weights of a unit are used.
  void use(int unit);
  void used(int unit);
  /// Before and after the gradients of a unit are formed.
  void open(int unit) { data_.open_gradients(unit); }
  void close(int unit);

  // A unit whose forward runs between enter() and leave(): its weights are here while its
  // forward, its backward and its recomputation run, and its gradients are closed when
  // the last of them is computed, so that reductions overlap with the units before it.
  // The embedding has no weights in its backward, and its gradients are its user's to
  // close. This object must live until the backward.

  /// Gathers the unit's weights; x is what the unit is given, nothing for the embedding.
  /// The result is x with a node of the graph that ends the unit's backward.
  nn::Tensors enter(int unit, const nn::Tensors& x, const ops::WeightGradientsPtr& queue);
  /// Releases the weights; the result is the unit's result y with a node that begins its
  /// backward.
  nn::Tensors leave(int unit, const nn::Tensors& y, const ops::WeightGradientsPtr& queue,
                    bool embedding = false);
  /// The block's backward begins or ends: for its nodes.
  void tell(int unit, bool backward, bool begins) const {
    if (watcher_) watcher_(unit, backward, begins);
  }

 private:
  Watcher watcher_;
  DataParallel& data_;
  const UnitPlan* plan_ = nullptr;  ///< null: none has begun
  size_t next_weights_ = 0;
  size_t next_gradients_ = 0;
};

}  // namespace longhaul::parallel
