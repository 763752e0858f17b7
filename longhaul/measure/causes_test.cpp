#include "longhaul/measure/causes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longhaul::measure {
namespace {

Json row(const char* name, double seconds) {
  return {{"name", name}, {"calls", 1}, {"seconds", seconds}};
}

const Cause& cause(const std::vector<Cause>& causes, const std::string& name) {
  const auto found = std::ranges::find(causes, name, &Cause::name);
  EXPECT_NE(found, causes.end()) << name;
  return *found;
}

TEST(Causes, AddUpToTheStepAndAreHeldAgainstTheMachine) {
  run::ProfileEvent step;
  step.seconds = 2.0;
  step.operations = {row("aten::mm", 0.8),
                     row("longhaul::weight_gradient", 0.2),
                     row("longhaul::attention_backward", 0.3),
                     row("longhaul::rope", 0.05),
                     row("aten::add_", 0.05),
                     row("wait: all_reduce on 'dp'", 0.1),
                     row("longhaul::adamw", 0.15),
                     row("longhaul::add_squares", 0.05),
                     row("longhaul::embedding_gradient", 0.01),
                     row("LinearNode", 0.05)};
  HardwareProfile machine;
  machine.peak_bf16 = 2e12;
  machine.rates = {{"attention forward 1x2048", "FLOP", 1e12, 0, 0, 1},
                   {"attention and backward 1x2048", "FLOP", 5e11, 0, 0, 1},
                   {"copy through memory, read and written", "B", 1e10, 0, 0, 1}};
  const auto causes = causes_of(
      step, {.product_flops = 1.6e12, .attention_flops = 1e11, .update_bytes = 1e9},
      machine, "bf16");
  EXPECT_EQ(causes[0].name, "matrix products");
  EXPECT_DOUBLE_EQ(causes[0].seconds, 1.0);
  EXPECT_DOUBLE_EQ(causes[0].at_rate.value(), 0.8);
  EXPECT_DOUBLE_EQ(cause(causes, "attention").seconds, 0.3);
  EXPECT_DOUBLE_EQ(cause(causes, "attention").at_rate.value(), 0.2);
  EXPECT_DOUBLE_EQ(cause(causes, "optimizer and norm").at_rate.value(), 0.1);
  EXPECT_DOUBLE_EQ(cause(causes, "embedding").seconds, 0.01);
  EXPECT_DOUBLE_EQ(cause(causes, "waiting for other ranks").seconds, 0.1);
  EXPECT_FALSE(cause(causes, "waiting for other ranks").at_rate.has_value());
  EXPECT_NEAR(cause(causes, "outside of operations").seconds, 0.24, 1e-12);
  double all = 0.0;
  for (const Cause& one : causes) all += one.seconds;
  EXPECT_NEAR(all, 2.0, 1e-12);
}

TEST(Causes, WithoutARateNothingIsPromised) {
  run::ProfileEvent step;
  step.seconds = 1.0;
  step.operations = Json::array();
  const auto causes = causes_of(step, {.product_flops = 1e12}, {}, "fp32");
  EXPECT_FALSE(cause(causes, "matrix products").at_rate.has_value());
}

TEST(Causes, AreOfTheStepOfMedianLength) {
  std::vector<run::ProfileEvent> steps(3);
  steps[0].seconds = 3.0;
  steps[1].seconds = 1.0;
  steps[2].seconds = 2.0;
  EXPECT_EQ(&typical_step(steps), &steps[2]);
}

}  // namespace
}  // namespace longhaul::measure
