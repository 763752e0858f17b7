#include "longhaul/layout/pipeline/partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::layout {
namespace {

void check_enough(int64_t layers, int64_t stages) {
  LH_CHECK(stages >= 1, "pipeline", "{} stages", stages);
  if (layers >= stages) return;
  throw ConfigError(
      "pipeline",
      fmt::format("{} layers cannot fill {} stages (parallel.pp x virtual_stages): every "
                  "stage holds at least one layer; use at most {} stages",
                  layers, stages, layers));
}

std::vector<StageLayers> from_counts(std::span<const int64_t> counts) {
  std::vector<StageLayers> stages;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    stages.push_back({begin, begin + count});
    begin += count;
  }
  return stages;
}

/// Distributes `layers` over `stages` as evenly as possible; later stages are larger.
std::vector<int64_t> evenly(int64_t layers, int64_t stages) {
  std::vector<int64_t> counts(static_cast<size_t>(stages), 0);
  for (int64_t s = 0; s < stages; ++s) {
    // The last (layers mod stages) stages hold one more.
    counts[static_cast<size_t>(s)] = (layers + s) / stages;
  }
  return counts;
}

/// The largest cost of a stage, then the sum of the squares of all costs. Smaller is
/// better.
using Score = std::pair<double, double>;

Score score(const std::vector<int64_t>& counts, const LayerCosts& costs) {
  Score result{0.0, 0.0};
  for (size_t s = 0; s < counts.size(); ++s) {
    double cost = static_cast<double>(counts[s]) * costs.layer;
    if (s == 0) cost += costs.embedding;
    if (s + 1 == counts.size()) cost += costs.head;
    result.first = std::max(result.first, cost);
    result.second += cost * cost;
  }
  return result;
}

/// Compares two scores. Scores that differ only by rounding count as equal.
bool better(const Score& a, const Score& b) {
  constexpr double kRounding = 1e-12;
  if (a.first < b.first * (1.0 - kRounding)) return true;
  if (a.first > b.first * (1.0 + kRounding)) return false;
  return a.second < b.second * (1.0 - kRounding);
}

}  // namespace

std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          const LayerCosts& costs) {
  check_enough(layers, stages);
  LH_CHECK(costs.layer > 0 && costs.embedding >= 0 && costs.head >= 0, "pipeline",
           "costs of layer {}, embedding {}, head {} must not be negative", costs.layer,
           costs.embedding, costs.head);
  if (stages == 1) return {{0, layers}};
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Score best{kInfinite, kInfinite};
  std::vector<int64_t> chosen;
  const int64_t between = stages - 2;
  for (int64_t first = 1; first <= layers - between - 1; ++first) {
    for (int64_t last = 1; last <= layers - between - first; ++last) {
      const int64_t middle = layers - first - last;
      if (between == 0 && middle != 0) continue;
      std::vector<int64_t> counts{first};
      for (const int64_t count : evenly(middle, between)) counts.push_back(count);
      counts.push_back(last);
      const Score found = score(counts, costs);
      if (better(found, best)) {
        best = found;
        chosen = std::move(counts);
      }
    }
  }
  return from_counts(chosen);
}

std::vector<StageLayers> partition_layers(int64_t layers, int64_t stages,
                                          std::span<const int64_t> counts) {
  check_enough(layers, stages);
  if (static_cast<int64_t>(counts.size()) != stages) {
    throw ConfigError("pipeline",
                      fmt::format("parallel.partition has {} layer counts for {} stages "
                                  "(parallel.pp x virtual_stages); give one count per "
                                  "stage",
                                  counts.size(), stages));
  }
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 1 || count > layers) {
      throw ConfigError(
          "pipeline", fmt::format("a stage of {} layers; every stage holds at least one "
                                  "of the model's {} layers",
                                  count, layers));
    }
    sum += count;
  }
  if (sum != layers) {
    throw ConfigError(
        "pipeline", fmt::format("parallel.partition: the layer counts add up to {}, but "
                                "the model has {} layers; change them by {}",
                                sum, layers, layers - sum));
  }
  return from_counts(counts);
}

}  // namespace longhaul::layout
