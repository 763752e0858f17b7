#pragma once

#include <optional>

#include "longhaul/nn/linear.h"
#include "longhaul/nn/norm.h"

namespace longhaul::models {

/// The embedding of a network (families::Embedding) beside its table of tokens, which a
/// tied head has as well.
class Embedding {
 public:
  /// Takes the parameters.
  Embedding(ParameterSet& parameters, const families::Embedding& form);
  /// [T, H], of this rank's part of T.
  at::Tensor forward(const nn::Embedding& tokens,
                     const nn::ForwardContext& context) const;

 private:
  std::optional<nn::Embedding> positions_, types_;
  std::optional<nn::Norm> norm_;
  double dropout_, scale_;
  bool rounds_scale_;
};

}  // namespace longhaul::models
