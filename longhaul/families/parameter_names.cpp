#include "longhaul/families/parameter_names.h"

#include <algorithm>
#include <utility>

namespace longhaul {
namespace {

void append_new(std::vector<std::string>& names, std::string name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
}

}  // namespace

const std::string& file_name(const ParameterDescription& parameter) {
  return parameter.stored ? parameter.stored->name : parameter.name;
}

std::string together_name(const ParameterDescription& parameter) {
  return parameter.other_form ? parameter.other_form->name : "";
}

std::vector<std::string> names_of(const ModelDescription& model,
                                  const ParameterDescription& parameter) {
  std::vector<std::string> names{parameter.name};
  append_new(names, file_name(parameter));
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    for (const auto& [old, now] : model.old_endings) {
      if (!names[i].ends_with(now)) continue;
      append_new(names, names[i].substr(0, names[i].size() - now.size()) + old);
    }
  }
  const std::string& prefix = model.optional_prefix;
  if (prefix.empty()) return names;
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    if (names[i].starts_with(prefix)) append_new(names, names[i].substr(prefix.size()));
  }
  return names;
}

}  // namespace longhaul
