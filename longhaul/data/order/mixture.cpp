#include "longhaul/data/order/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

__extension__ using Wide = unsigned __int128;

/// round(n * share / 2^64).
int64_t left_count(int64_t n, uint64_t share) {
  const Wide product = Wide{static_cast<uint64_t>(n)} * share;
  return static_cast<int64_t>((product + (Wide{1} << 63)) >> 64);
}

uint64_t to_share(double fraction) {
  // The largest fraction below one: the lighter side always gets something.
  constexpr double kBelowOne = 1.0 - 0x1.0p-53;
  return static_cast<uint64_t>(std::ldexp(std::min(fraction, kBelowOne), 64));
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights)
    : num_sources_(static_cast<int>(weights.size())) {
  LH_CHECK(!weights.empty(), "data", "a mixture of no sources");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0.0) {
      throw ConfigError(
          "data", fmt::format("source {} of data.train has weight {}; a weight is a "
                              "positive number (leave the source out to not use it)",
                              i + 1, weights[i]));
    }
  }
  root_ = build(weights);
}

int Mixture::build(const std::vector<double>& weights) {
  std::vector<std::pair<double, int>> heap;  // weight and node; ties by node
  for (size_t i = 0; i < weights.size(); ++i) {
    heap.emplace_back(weights[i], static_cast<int>(i));
    nodes_.push_back({static_cast<int>(i), -1, -1, 0});
  }
  const auto take_lightest = [&] {
    const auto lightest = std::min_element(heap.begin(), heap.end());
    const std::pair<double, int> taken = *lightest;
    heap.erase(lightest);
    return taken;
  };
  while (heap.size() > 1) {
    const auto right = take_lightest();
    const auto left = take_lightest();
    const double sum = left.first + right.first;
    heap.emplace_back(sum, static_cast<int>(nodes_.size()));
    nodes_.push_back({-1, left.second, right.second, to_share(left.first / sum)});
  }
  return heap.front().second;
}

Mixture::Pick Mixture::pick(int64_t sequence) const {
  LH_CHECK(sequence >= 0 && sequence <= (int64_t{1} << 62), "data",
           "sequence {} of a mixture", sequence);
  int at = root_;
  int64_t n = sequence;
  while (nodes_[static_cast<size_t>(at)].source < 0) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    const int64_t before = left_count(n, node.share);
    const bool left = left_count(n + 1, node.share) > before;
    at = left ? node.left : node.right;
    n = left ? before : n - before;
  }
  return {nodes_[static_cast<size_t>(at)].source, n};
}

std::vector<int64_t> Mixture::counts(int64_t sequences) const {
  std::vector<int64_t> of_node(nodes_.size(), 0);
  std::vector<int64_t> result(static_cast<size_t>(num_sources_), 0);
  of_node[static_cast<size_t>(root_)] = sequences;
  // Children stand before their parents in nodes_.
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (node.source >= 0) {
      result[static_cast<size_t>(node.source)] = of_node[i];
    } else {
      const int64_t left = left_count(of_node[i], node.share);
      of_node[static_cast<size_t>(node.left)] = left;
      of_node[static_cast<size_t>(node.right)] = of_node[i] - left;
    }
  }
  return result;
}

}  // namespace longhaul::data
