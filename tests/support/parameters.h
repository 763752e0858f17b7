#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <string>
#include <tuple>

#include "longhaul/families/layers/rms_form.h"
#include "longhaul/tensor/parameter.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::ops {

/// Returns a parameter with these values and a zero fp32 accumulator.
inline tensor::ParameterPtr bound(const at::Tensor& values,
                                  const std::string& name = "w") {
  auto parameter = tensor::make_parameter(name, values.sizes().vec(), {});
  parameter->set_frozen(false);
  parameter->bind(values.clone(), at::zeros(values.sizes(), at::kFloat));
  return parameter;
}

inline at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

/// Expects that ||a - b|| <= tolerance * ||b||, in fp64.
inline void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const double error = (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
  const double size = b.to(at::kDouble).norm().item<double>();
  EXPECT_LE(error, tolerance * size + 1e-12) << what << ": " << error << " of " << size;
}

inline void backward(const at::Tensor& y, const at::Tensor& dy) {
  torch::autograd::backward({y}, {dy});
}

using NormParam = std::tuple<at::ScalarType, bool, RmsForm>;

/// The base of tests that run for a norm's form, a dtype, and fused or composite.
class NormTest : public ::testing::TestWithParam<NormParam> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  static at::ScalarType type() { return std::get<0>(GetParam()); }
  static bool fused() { return std::get<1>(GetParam()); }
  static RmsForm form() { return std::get<2>(GetParam()); }
};

inline auto every_norm() {
  return ::testing::Combine(
      ::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool(),
      ::testing::Values(RmsForm::WeightAfterCast, RmsForm::WeightBeforeCast,
                        RmsForm::OnePlusWeight));
}
inline std::string name_of_norm(const ::testing::TestParamInfo<NormParam>& which) {
  const std::array forms = {"AfterCast", "BeforeCast", "OnePlus"};
  const auto [type, fused, form] = which.param;
  return std::string(type == at::kFloat ? "Fp32" : "Bf16") +
         (fused ? "Fused" : "Composite") + forms[static_cast<size_t>(form)];
}

/// Returns half a dozen roundings of the dtype, as a relative error.
inline double tolerance_of(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : 1e-2;
}

}  // namespace longhaul::ops
