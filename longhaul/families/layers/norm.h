#pragma once

#include <string>

#include "longhaul/families/layers/rms_form.h"
#include "longhaul/families/layers/unit_maker.h"

namespace longhaul::families {

/// A norm over the width of its input.
struct Norm {
  enum class Kind {
    Rms,    ///< with a weight (ops/rms_norm.h)
    Layer,  ///< with a weight and a bias (ops/layer_norm.h)
  };
  Kind kind = Kind::Rms;
  std::string name;
  double eps = 0.0;
  RmsForm form = RmsForm::WeightAfterCast;  ///< used by an RMS norm only
  bool operator==(const Norm&) const = default;
};

/// Adds the norm of x to the unit's description.
inline Feature add_norm(UnitMaker& unit, const Norm& norm, const Feature& x) {
  return norm.kind == Norm::Kind::Layer ? unit.layer_norm(norm.name, x)
                                        : unit.norm(norm.name + ".weight", x, norm.form);
}

}  // namespace longhaul::families
