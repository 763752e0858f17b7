#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "longhaul/nn/attention.h"
#include "longhaul/nn/experts.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/norm.h"

namespace longhaul::models {

/// The layers that families::Core describes.
using Core = std::variant<nn::Attention, nn::FeedForward, nn::Experts>;

/// A block of a network, as families::Block describes it.
class Block {
 public:
  /// Takes the parameters of block number `layer`.
  Block(tensor::ParameterSet& parameters, const families::Block& form, int64_t layer);

  /// Maps x [T, H], or this rank's tokens of it, to the same shape.
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const;

  /// Gives the block's attention its tables of rotations.
  void prepare(nn::RopeTables& tables);
  /// Returns an empty cache for the block's attention.
  ops::KeptPositions make_cache(int64_t batch, int64_t capacity,
                                const at::TensorOptions& options) const;

 private:
  struct Branch {
    std::optional<nn::Norm> before, after;
    Core core;
    double dropout, scale;
  };
  struct Step {
    std::vector<Branch> branches;
    std::optional<nn::Norm> of_stream;
  };

  /// Runs what follows the first norm of a branch; `in` is the result of that norm.
  at::Tensor run(const Branch& branch, const at::Tensor& in,
                 const nn::ForwardContext& context) const;

  std::vector<Step> steps_;
  int64_t layer_;
};

}  // namespace longhaul::models
