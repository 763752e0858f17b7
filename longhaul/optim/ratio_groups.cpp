#include "longhaul/optim/ratio_groups.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::optim {

TensorOfParameter stored_tensor_names(const ModelDescription& model) {
  TensorOfParameter tensors;
  for (const UnitDescription& unit : model.units) {
    for (const ParameterDescription& p : unit.parameters) {
      tensors[p.name] = p.stored ? p.stored->name : p.name;
    }
  }
  return tensors;
}

void check_ratio_groups(const ModelDescription& model, std::span<const std::string> names,
                        const ParamGroups& groups) {
  const TensorOfParameter tensors = stored_tensor_names(model);
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& tensor = tensors.at(names[i]);
    const ParamSettings& one = groups.settings[first.emplace(tensor, i).first->second];
    const ParamSettings& other = groups.settings[i];
    if (one.weight_decay == other.weight_decay && one.frozen == other.frozen) continue;
    const auto text = [](const ParamSettings& s) {
      return s.frozen ? std::string("frozen")
                      : fmt::format("weight_decay {}", s.weight_decay);
    };
    throw ConfigError(
        "optimizer",
        fmt::format("optimizer.groups tells {} {} and {} {}, but both are parts of {}, "
                    "for which optimizer.kind = \"lamb\" has one trust ratio; give them "
                    "the same",
                    names[first.at(tensor)], text(one), names[i], text(other), tensor));
  }
}

}  // namespace longhaul::optim
