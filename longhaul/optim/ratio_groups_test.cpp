#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/optim/param_groups.h"

namespace longhaul::optim {
namespace {

/// Returns a model with two parameters in one stored tensor, and one parameter that is a
/// tensor of its own.
ModelDescription fused_model() {
  ModelDescription model;
  UnitDescription& unit = model.units.emplace_back();
  for (const char* name : {"q.weight", "k.weight", "o.weight"}) {
    ParameterDescription& p = unit.parameters.emplace_back();
    p.name = name;
    p.shape = {4, 4};
  }
  unit.parameters[0].stored = StoredForm{.name = "qk.weight"};
  unit.parameters[1].stored = StoredForm{.name = "qk.weight"};
  return model;
}

ParamGroups groups_of(const ModelDescription& model, ParameterGroup group) {
  OptimizerSection section;
  section.weight_decay = 0.01;
  section.groups = {std::move(group)};
  return assign_param_groups(model, section);
}

TEST(RatioGroups, AreTheTensorsOfTheFiles) {
  const TensorOfParameter tensors = stored_tensor_names(fused_model());
  EXPECT_EQ(tensors, (TensorOfParameter{{"q.weight", "qk.weight"},
                                        {"k.weight", "qk.weight"},
                                        {"o.weight", "o.weight"}}));
}

TEST(RatioGroups, RefuseOneTensorWithTwoDecaysOrFrozenInPart) {
  const ModelDescription model = fused_model();
  const auto check = [&](const ParameterGroup& group) {
    check_ratio_groups(model, groups_of(model, group));
  };
  check({"q.weight", 0.5, {}, false});
  check({"o.weight", 1.0, 0.0, false});
  check({"o.weight", 1.0, {}, true});
  try {
    check({"q.weight", 1.0, 0.25, false});
    FAIL() << "two decays were accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "[optimizer] optimizer.groups gives q.weight weight_decay 0.25 and "
              "k.weight weight_decay 0.01, but both are parts of qk.weight, for which "
              "optimizer.kind = \"lamb\" has one trust ratio; give both the same");
  }
  EXPECT_THROW(check({"k.weight*", 1.0, {}, true}), ConfigError);
  check({"qk.weight", 1.0, {}, true});  // the tensor's name means all of it
}

}  // namespace
}  // namespace longhaul::optim
