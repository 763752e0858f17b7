#pragma once

#include <functional>
#include <utility>

#include "longhaul/layout/unit_plan.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/data/data_parallel.h"

namespace longhaul::parallel {

/// Does what a step's UnitPlan says: gathers, releases and reduces units as their turn
/// comes. A use that is not the plan's next one is an internal error, because the
/// collectives of other ranks would not match. `data` must outlive the runner. use and
/// close are Collective.
class UnitRunner {
 public:
  explicit UnitRunner(DataParallel& data) : data_(data) {}

  /// Is called when the forward or the backward of a unit's block begins and when it
  /// ends.
  using Watcher = std::function<void(int unit, bool backward, bool begins)>;
  void set_watcher(Watcher watcher) { watcher_ = std::move(watcher); }

  /// Begins a step. `plan` must live until end().
  void begin(const layout::UnitPlan& plan);
  /// Ends a step: checks that the whole plan was done, and waits for reductions.
  void end();
  /// Forgets a failed step.
  void abandon();

  /// Must be called before and after the weights of a unit are used.
  void use(int unit);
  void used(int unit);
  /// Must be called before and after the gradients of a unit are formed.
  void open(int unit) { data_.open_gradients(unit); }
  void close(int unit);

  // A unit's forward runs between enter() and leave(). The unit's weights are present
  // while its forward, its backward and its recomputation run. Its gradients are closed
  // when the last of them is computed, so that reductions overlap with the backward of
  // the units before. The embedding uses no weights in its backward, and the caller
  // closes its gradients. The runner must live until the backward ends.

  /// Gathers the unit's weights. `x` is the unit's input, empty for the embedding.
  /// Returns x with a node in the graph that ends the unit's backward.
  nn::Tensors enter(int unit, const nn::Tensors& x, const ops::WeightGradientsPtr& queue);
  /// Releases the weights. Returns the unit's result y with a node in the graph that
  /// begins the unit's backward.
  nn::Tensors leave(int unit, const nn::Tensors& y, const ops::WeightGradientsPtr& queue,
                    bool embedding = false);
  /// Tells the watcher that a block begins or ends. The nodes of the graph call this.
  void tell(int unit, bool backward, bool begins) const {
    if (watcher_) watcher_(unit, backward, begins);
  }

 private:
  Watcher watcher_;
  DataParallel& data_;
  const layout::UnitPlan* plan_ = nullptr;  ///< null: no step has begun
  size_t next_weights_ = 0;
  size_t next_gradients_ = 0;
};

}  // namespace longhaul::parallel
