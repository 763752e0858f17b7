#include "longhaul/tensor/parameter_set.h"

#include "longhaul/base/error.h"

namespace longhaul::tensor {

ParameterSet::ParameterSet(const std::vector<UnitDescription>& units) {
  for (const UnitDescription& described : units) {
    ParameterUnit unit{described.kind, described.layer, {}};
    for (const ParameterDescription& p : described.parameters) {
      unit.parameters.push_back(std::make_shared<Parameter>(p));
      by_name_[p.name] = unit.parameters.back();
      left_.insert(p.name);
    }
    units_.push_back(std::move(unit));
  }
}

ParameterPtr ParameterSet::take(const std::string& name) {
  const auto found = by_name_.find(name);
  LH_ASSERT(found != by_name_.end(),
            "the mathematics asks for {}, which the family does not describe", name);
  left_.erase(name);
  return found->second;
}

void ParameterSet::check_taken() const {
  LH_ASSERT(left_.empty(), "the family describes {}, which its mathematics does not use",
            *left_.begin());
}

}  // namespace longhaul::tensor
