#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "longhaul/families/description.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul {

/// A unit's parameters as handles; see UnitDescription.
struct ParameterUnit {
  UnitKind kind = UnitKind::Block;
  int64_t layer = 0;  ///< Block: its number in the whole model
  std::vector<ParameterPtr> parameters;
};

/// The parameters of a part of a model, whole and without storage, as its description has
/// them. Layers take theirs by name, so that what is described and what is computed with
/// cannot differ.
class ParameterSet {
 public:
  explicit ParameterSet(const std::vector<UnitDescription>& units);

  /// In forward order, each parameter once.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Internal error for a name that is not described.
  ParameterPtr take(const std::string& name);
  /// Internal error where a parameter is described that nobody has taken.
  void check_taken() const;

 private:
  std::vector<ParameterUnit> units_;
  std::map<std::string, ParameterPtr> by_name_;
  std::set<std::string> left_;
};

}  // namespace longhaul
