#include "longhaul/optim/ratio_groups.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/families/parameter_names.h"

namespace longhaul::optim {

TensorOfParameter stored_tensor_names(const ModelDescription& model) {
  TensorOfParameter tensors;
  for (const ParameterDescription& p : model.parameters()) {
    tensors[p.name] = file_name(p);
  }
  return tensors;
}

void check_ratio_groups(const ModelDescription& model, const ParamGroups& groups) {
  const TensorOfParameter tensors = stored_tensor_names(model);
  std::map<std::string, std::string> first;
  for (const std::string& name : model.names()) {
    const std::string& tensor = tensors.at(name);
    const std::string& before = first.emplace(tensor, name).first->second;
    const tensor::ParameterClass& one = groups.settings.at(before);
    const tensor::ParameterClass& other = groups.settings.at(name);
    if (one.weight_decay == other.weight_decay && one.frozen == other.frozen) continue;
    const auto text = [](const tensor::ParameterClass& s) {
      return s.frozen ? std::string("frozen")
                      : fmt::format("weight_decay {}", s.weight_decay);
    };
    fail_config("optimizer",
                "optimizer.groups gives {} {} and {} {}, but both are parts of {}, for "
                "which optimizer.kind = \"lamb\" has one trust ratio; give both the same",
                before, text(one), name, text(other), tensor);
  }
}

}  // namespace longhaul::optim
