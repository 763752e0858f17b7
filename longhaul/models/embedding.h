#pragma once

#include <optional>

#include "longhaul/nn/linear.h"
#include "longhaul/nn/norm.h"

namespace longhaul::models {

/// The embedding of a network, as families::Embedding describes it, without its table of
/// tokens: a tied head needs that table as well.
class Embedding {
 public:
  /// Takes the parameters that `form` names.
  Embedding(tensor::ParameterSet& parameters, const families::Embedding& form);
  /// Returns [T, H], or this rank's tokens of it (sequence parallelism).
  at::Tensor forward(const nn::Embedding& tokens,
                     const nn::ForwardContext& context) const;

 private:
  std::optional<nn::Embedding> positions_, types_;
  std::optional<nn::Norm> norm_;
  double dropout_, scale_;
  bool rounds_scale_;
};

}  // namespace longhaul::models
