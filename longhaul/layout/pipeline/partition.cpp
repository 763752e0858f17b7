#include "longhaul/layout/pipeline/partition.h"

#include <algorithm>
#include <limits>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Returns whether a is smaller than b by more than rounding.
bool below(double a, double b) { return a < b * (1.0 - 1e-10); }

/// Cuts layers into stages. The best cuts of the first layers into the first stages lead
/// to the best cut of all (dynamic programming).
class Partition {
 public:
  Partition(const LayerCosts& costs, size_t stages)
      : costs_(costs), layers_(costs.layers.size()), stages_(stages) {
    for (const double cost : costs.layers) sums_.push_back(sums_.back() + cost);
  }

  std::vector<int64_t> counts() {
    cut(kInfinite);
    cut(cuts_.back()[layers_].score);
    std::vector<int64_t> counts(stages_);
    for (size_t stage = stages_, end = layers_; stage-- > 0;) {
      const size_t begin = cuts_[stage][end].begin;
      counts[stage] = static_cast<int64_t>(end - begin);
      end = begin;
    }
    return counts;
  }

 private:
  /// The best cut of the first `end` layers into stages 0 to `stage`, as
  /// cuts_[stage][end].
  struct Cut {
    double score = kInfinite;
    size_t begin = 0;  ///< first layer of the last of these stages
    size_t first = 0;  ///< layers of the first stage
  };

  double cost(size_t stage, size_t begin, size_t end) const {
    double cost = sums_[end] - sums_[begin];
    if (stage == 0) cost += costs_.embedding;
    if (stage + 1 == stages_) cost += costs_.head;
    return cost;
  }

  /// Finds the best cuts. The score is the largest cost of a stage if `limit` is
  /// infinite; else the sum of the squares of the costs, none of which is above `limit`.
  void cut(double limit) {
    cuts_.assign(stages_, std::vector<Cut>(layers_ + 1));
    for (size_t stage = 0; stage < stages_; ++stage) {
      const size_t behind = stages_ - stage - 1;  // later stages, with a layer each
      for (size_t end = behind == 0 ? layers_ : stage + 1; end + behind <= layers_;
           ++end) {
        choose(stage, end, limit);
      }
    }
  }

  void choose(size_t stage, size_t end, double limit) {
    const bool largest = limit == kInfinite;
    Cut& best = cuts_[stage][end];
    // A stage that begins earlier costs more, so that the loop may end at a cost too
    // high.
    for (size_t begin = stage == 0 ? 1 : end; begin-- > stage;) {
      const double own = cost(stage, begin, end);
      if (below(largest ? best.score : limit, own)) break;
      const Cut before = stage == 0 ? Cut{0.0, 0, end} : cuts_[stage - 1][begin];
      const Cut found = {largest ? std::max(before.score, own) : before.score + own * own,
                         begin, before.first};
      const bool fewer =
          stage + 1 == stages_ ? found.first < best.first : found.first <= best.first;
      if (below(found.score, best.score) || (fewer && !below(best.score, found.score))) {
        best = found;
      }
    }
  }

  const LayerCosts& costs_;
  size_t layers_, stages_;
  std::vector<double> sums_ = {0.0};  ///< costs of the layers before each
  std::vector<std::vector<Cut>> cuts_;
};

}  // namespace

std::vector<StageLayers> partition_layers(const LayerCosts& costs, int64_t stages) {
  LH_CHECK(stages >= 1 && stages <= std::ssize(costs.layers), "pipeline",
           "{} layers for {} stages", costs.layers.size(), stages);
  LH_CHECK(std::ranges::min(costs.layers) > 0 && costs.embedding >= 0 && costs.head >= 0,
           "pipeline", "costs of layers from {}, of embedding {} and of head {}",
           std::ranges::min(costs.layers), costs.embedding, costs.head);
  return partition_layers(Partition(costs, static_cast<size_t>(stages)).counts());
}

std::vector<StageLayers> partition_layers(std::span<const int64_t> counts) {
  std::vector<StageLayers> stages;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    stages.push_back({begin, begin + count});
    begin += count;
  }
  return stages;
}

}  // namespace longhaul::layout
