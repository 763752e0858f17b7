// Stands in the place of the program's two registries: their line for this family.

#include "tests/toy_family/toy.h"

namespace longhaul::families {

const std::vector<const Family*>& all_families() {
  static const std::vector<const Family*> families = {&toy::toy_family()};
  return families;
}

const Family* find_family(std::string_view model_type) {
  return model_type == "toy" ? &toy::toy_family() : nullptr;
}

}  // namespace longhaul::families

namespace longhaul::models {

const ModelFamily* find_model_family(std::string_view model_type) {
  return model_type == "toy" ? &toy::toy_model_family() : nullptr;
}

}  // namespace longhaul::models
