#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "longhaul/families/description/description.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::tensor {

/// The parameters of a unit as handles (see UnitDescription).
struct ParameterUnit {
  UnitKind kind = UnitKind::Block;
  int64_t layer = 0;  ///< a block's number in the whole model
  std::vector<ParameterPtr> parameters;
};

/// The parameters of a part of a model, whole and without storage, as the description
/// names them. Layers take their parameters by name, so that the described and the used
/// parameters cannot differ.
class ParameterSet {
 public:
  explicit ParameterSet(const std::vector<UnitDescription>& units);

  /// Returns the units in forward order; each parameter occurs once.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Returns a parameter. Throws an Internal error for a name that is not described.
  ParameterPtr take(const std::string& name);
  /// Throws an Internal error if a described parameter has not been taken.
  void check_taken() const;

 private:
  std::vector<ParameterUnit> units_;
  std::map<std::string, ParameterPtr> by_name_;
  std::set<std::string> left_;
};

}  // namespace longhaul::tensor
