#pragma once

namespace longhaul::tensor {

/// What the optimizer does with a parameter.
struct ParameterClass {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
  bool frozen = false;
  bool operator==(const ParameterClass&) const = default;
};

}  // namespace longhaul::tensor
