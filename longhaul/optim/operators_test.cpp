// Tests the updates on a device, with kernels for the operators and without them. The
// host never waits for the device. The device is no real one: the tests register it.
#include "longhaul/optim/operators.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <limits>

#include "longhaul/comm/backend.h"
#include "longhaul/optim/composite_updates.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/lamb.h"
#include "longhaul/optim/operator_kernels.h"
#include "longhaul/optim/optimizer.h"
#include "tests/support/checked_device.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim {
namespace {

using longhaul::testing::kDevice;
using longhaul::testing::make_device;
using longhaul::testing::waits;

constexpr int64_t kElements = 5003;

/// How masters, moments and weights are held.
struct Held {
  at::ScalarType gradient, moments, weight;
  bool rounded;
};
constexpr Held kHeld[] = {{at::kFloat, at::kFloat, at::kFloat, false},
                          {at::kFloat, at::kFloat, at::kBFloat16, false},
                          {at::kBFloat16, at::kBFloat16, at::kBFloat16, false},
                          {at::kFloat, at::kFloat, at::kBFloat16, true},
                          {at::kBFloat16, at::kBFloat16, at::kBFloat16, true}};

/// Returns a state with the same numbers in every call.
AdamWTensors state(const Held& held, at::Device device = at::kCPU) {
  at::manual_seed(6);
  const auto on = [&](const at::Tensor& x) { return x.to(device); };
  const auto some = [&] { return at::randn({kElements}); };
  AdamWTensors t{on(some().to(held.gradient)),
                 on(some()),
                 on((some() * 0.1).to(held.moments)),
                 on((some().abs() * 0.1).to(held.moments)),
                 {}};
  t.weight = held.weight == at::kFloat ? t.master : t.master.to(held.weight);
  if (held.rounded) {
    t.master = t.weight;
    t.rounding = {rounding_key(4, "w"), {11, 333, 1000, (int64_t{2} << 32) - 6000}};
  }
  return t;
}

AdamWRange range(const AdamWTensors& t) {
  return range_of(t.gradient, t.master, t.exp_avg, t.exp_avg_sq, t.weight, 1, t.rounding);
}

void expect_same(const AdamWTensors& a, const AdamWTensors& b) {
  EXPECT_TRUE(a.master.cpu().equal(b.master.cpu()));
  EXPECT_TRUE(a.exp_avg.cpu().equal(b.exp_avg.cpu()));
  EXPECT_TRUE(a.exp_avg_sq.cpu().equal(b.exp_avg_sq.cpu()));
  EXPECT_TRUE(a.weight.cpu().equal(b.weight.cpu()));
}

AdamWStep step_of(AdamConvention convention) {
  return {.convention = convention,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-6,
          .lr = 1e-2,
          .weight_decay = 0.1,
          .grad_scale = 0.7,
          .update = 3};
}

/// Expects that the calls on a device have the bits of the CPU's loops.
void expect_loops(at::Device device) {
  for (const Held& held : kHeld) {
    for (const auto convention : {AdamConvention::Torch, AdamConvention::Hf}) {
      const AdamWStep step = step_of(convention);
      const AdamWTensors a = state(held, device), b = state(held);
      update_adamw(a, step);
      adamw_update(range(b), step);
      expect_same(a, b);
    }
    const AdamWStep step = step_of(AdamConvention::Hf);
    const AdamWTensors a = state(held, device), b = state(held);
    const at::Tensor sums = at::full({2}, 0.5, at::kDouble).to(device);
    update_lamb_moments(a, step, sums);
    const LambSums expected = lamb_moments(range(b), step);
    EXPECT_EQ(sums.cpu()[0].item<double>(), 0.5 + expected.weight);
    EXPECT_EQ(sums.cpu()[1].item<double>(), 0.5 + expected.update);
    // No binary fraction is equal to this rate. An fp32 number for it would change the
    // results.
    constexpr double kRate = 1.0 / 3.0 + 1e-9;
    apply_lamb(a, step, at::full({1}, kRate, at::kDouble).to(device));
    AdamWStep slower = step;
    slower.lr = kRate * step.lr;
    lamb_apply(range(b), slower);
    expect_same(a, b);
    const at::Tensor into = at::full({3}, 0.5, at::kDouble).to(device);
    const at::Tensor head = a.gradient.narrow(0, 0, 7);
    add_squares({a.gradient, head, head}, {2, 0, 2}, into);
    const auto squares = [&](int64_t count) {
      return sum_of_squares(b.gradient.data_ptr(), count,
                            tensor::from_scalar_type(held.gradient));
    };
    EXPECT_EQ(into.cpu()[0].item<double>(), 0.5 + squares(7));
    EXPECT_EQ(into.cpu()[1].item<double>(), 0.5);
    EXPECT_EQ(into.cpu()[2].item<double>(), 0.5 + squares(kElements) + squares(7));
  }
}

TEST(UpdateOperators, OfTheCpuHaveTheBitsOfItsLoops) { expect_loops(at::kCPU); }

int plugin_calls = 0;

/// Kernels that a plug-in brings.
struct OfAPlugin {
  static void adamw(const AdamWRange& r, const AdamWScalars& s, int64_t update,
                    at::Device device) {
    EXPECT_EQ(device, kDevice);
    ++plugin_calls;
    adamw_loop(r, s, update);
  }
  static void lamb_moments(const AdamWRange& r, const AdamWScalars& s, float decay,
                           int64_t update, double* sums, at::Device /*device*/) {
    ++plugin_calls;
    const LambSums added = lamb_moments_loop(r, s, decay, update);
    sums[0] += added.weight;
    sums[1] += added.update;
  }
  static void lamb_apply(const AdamWRange& r, const AdamWScalars& s, const LambRate& of,
                         const double* rate, int64_t update, at::Device /*device*/) {
    ++plugin_calls;
    lamb_apply_loop(r, lamb_scalars_at(s, of, *rate), update);
  }
  static void add_squares(std::span<const SquaresRange> parts, format::DType dtype,
                          at::Device /*device*/) {
    ++plugin_calls;
    for (const SquaresRange& part : parts) {
      *part.into += sum_of_squares(part.x, part.count, dtype);
    }
  }
};

TEST(UpdateOperators, OfAPluginAreTakenOnItsDevice) {
  make_device();
  torch::Library library(torch::Library::IMPL, "longhaul", c10::DispatchKey::PrivateUse1,
                         __FILE__, __LINE__);
  implement_updates<OfAPlugin>(library);
  plugin_calls = 0;
  expect_loops(kDevice);
  EXPECT_EQ(plugin_calls, 5 * std::ssize(kHeld));
}

TEST(UpdateComposites, OfAnUpdateInPartsHaveTheBitsOfOneInOne) {
  for (const Held& held : kHeld) {
    const AdamWStep step = step_of(AdamConvention::Torch);
    const AdamWTensors whole = state(held), parts = state(held);
    adamw_composite(whole, step);
    adamw_composite(parts, step, 777);
    expect_same(parts, whole);
    const at::Tensor one = at::zeros({2}, at::kDouble), two = at::zeros({2}, at::kDouble);
    lamb_moments_composite(whole, step, one);
    lamb_moments_composite(parts, step, two, 777);
    EXPECT_TRUE(at::allclose(one, two, 1e-12, 0.0));
    EXPECT_GT(one[1].item<double>(), 1.0);
    const at::Tensor rate = at::full({1}, 0.3, at::kDouble);
    lamb_apply_composite(whole, step, rate);
    lamb_apply_composite(parts, step, rate, 777);
    expect_same(parts, whole);
  }
}

TEST(UpdateComposites, TakeABoundedNumberOfElementsAtATime) {
  const at::Tensor many = at::zeros({1}).expand({2 * kCompositeElements + 3});
  AdamWTensors t{many, many, many, many, many};
  const auto sizes = [&] {
    std::vector<int64_t> found;
    for (const AdamWTensors& part : parts_of(t)) {
      found.push_back(part.weight.numel());
      EXPECT_EQ(part.gradient.numel(), found.back());
    }
    return found;
  };
  EXPECT_EQ(sizes(), (std::vector<int64_t>{kCompositeElements, kCompositeElements, 3}));
  t.rounding = {1, {17, 100, 200, 5}};
  const auto rounded = parts_of(t);
  ASSERT_EQ(rounded.size(), 9U);
  EXPECT_EQ(rounded[2].master.numel(), kRoundedElements);
  EXPECT_EQ(rounded[2].rounding->place.begin, 17 + 2 * kRoundedElements);
}

/// Returns the most bytes that a call allocates on the device at once.
template <typename Call>
int64_t taken_by(const Call& call) {
  const int64_t before = longhaul::testing::device_bytes;
  longhaul::testing::device_memory.peak = before;
  call();
  return longhaul::testing::device_memory.peak - before;
}

TEST(UpdateComposites, TakeMemoryForAPartAndNotForTheWhole) {
  make_device();
  constexpr int64_t kPart = 100;
  for (const Held& held : kHeld) {
    const AdamWStep step = step_of(AdamConvention::Torch);
    const AdamWTensors t = state(held, kDevice);
    const at::Tensor sums = at::zeros({2}, at::kDouble).to(kDevice);
    const at::Tensor rate = at::ones({1}, at::kDouble).to(kDevice);
    // The update may take sixteen copies of 8 bytes for each element, since it forms
    // numbers that round and squares in fp64.
    const auto expect_bounded = [&](const auto& update) {
      EXPECT_GT(taken_by([&] { update(kElements); }), 4 * 4 * kElements);
      EXPECT_LT(taken_by([&] { update(kPart); }), 16 * 8 * kPart);
    };
    expect_bounded([&](int64_t most) { adamw_composite(t, step, most); });
    expect_bounded([&](int64_t most) { lamb_moments_composite(t, step, sums, most); });
    expect_bounded([&](int64_t most) { lamb_apply_composite(t, step, rate, most); });
  }
}

/// Two trained parameters that share one stored tensor, and one that has a tensor of its
/// own.
struct OnADevice {
  OnADevice(at::Device device, format::DType states)
      : flat(flat_parameters(parameters, {1.0, 0.1, false}),
             {format::DType::BF16, states, states}, device) {
    at::manual_seed(8);
    for (const tensor::ParameterPtr& p : parameters) {
      p->weight().copy_(at::randn(p->slice().extent) * 0.1);
      p->grad().copy_(at::randn(p->slice().extent));
    }
  }
  std::vector<tensor::ParameterPtr> parameters = {
      tensor::make_parameter("b", {40, 50}, {}),
      tensor::make_parameter("a", {70, 10}, {}),
      tensor::make_parameter("c", {30, 20}, {})};
  tensor::FlatBuffers flat;
};

Optimizer optimizer_of(OnADevice& model, OptimizerKind kind) {
  OptimizerSection settings;
  settings.kind = kind;
  return {model.flat, settings, {{{"a", "ab"}, {"b", "ab"}, {"c", "c"}}, 17}};
}

/// Returns the host's waits for the device in the second of two updates.
std::vector<std::string> waits_of_an_update(OptimizerKind kind, format::DType states) {
  make_device();
  OnADevice model(kDevice, states);
  Optimizer optimizer = optimizer_of(model, kind);
  optimizer.step(0.01, 0.5, *comm::self_world());
  waits.take();
  optimizer.step(0.01, 0.5, *comm::self_world());
  return waits.take();
}

TEST(OptimizerOnADevice, DoesNotWaitForIt) {
  for (const format::DType states : {format::DType::F32, format::DType::BF16}) {
    EXPECT_TRUE(waits_of_an_update(OptimizerKind::AdamW, states).empty());
    EXPECT_TRUE(waits_of_an_update(OptimizerKind::Lamb, states).empty());
  }
}

// The test's device takes square roots from a library, whose last bit may be wrong.
TEST(TrustRatios, HaveTheSameBitsHereAndMissTheLastOnADeviceAtMost) {
  make_device();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0.0,  1e-320, 3e-7, 0.1,  1.0,
                                      1.75, 2.0,    1e9,  kInf, std::nan("")};
  std::vector<double> pairs, expected;
  for (const double weight : values) {
    for (const double update : values) {
      pairs.insert(pairs.end(), {weight, update});
      expected.push_back(trust_ratio({weight, update}));
    }
  }
  const at::Tensor sums = at::tensor(pairs, at::kDouble).view({-1, 2});
  EXPECT_TRUE(trust_ratios(sums).equal(at::tensor(expected, at::kDouble)));
  const at::Tensor there = trust_ratios(sums.to(kDevice));
  EXPECT_EQ(there.device(), kDevice);
  const at::Tensor ratios = there.cpu();
  for (size_t i = 0; i < expected.size(); ++i) {
    const double ratio = ratios[static_cast<int64_t>(i)].item<double>();
    EXPECT_NEAR(ratio, expected[i],
                2 * std::numeric_limits<double>::epsilon() * expected[i])
        << pairs[2 * i] << " " << pairs[2 * i + 1];
  }
}

TEST(OptimizerOnADevice, HasTheRatiosOfTheCpus) {
  make_device();
  OnADevice there(kDevice, format::DType::F32), here(at::kCPU, format::DType::F32);
  Optimizer a = optimizer_of(there, OptimizerKind::Lamb);
  Optimizer b = optimizer_of(here, OptimizerKind::Lamb);
  for (int i = 0; i < 2; ++i) {
    a.step(0.01, 0.5, *comm::self_world());
    b.step(0.01, 0.5, *comm::self_world());
  }
  std::map<std::string, double> ratios;
  for (const tensor::FlatMember& member : there.flat.buckets()[0].members) {
    ratios[member.parameter->name()] = a.trust_ratio(member);
    EXPECT_NEAR(a.trust_ratio(member), b.trust_ratio(member), 1e-6);
    EXPECT_LT(a.trust_ratio(member), 1.0);
  }
  EXPECT_EQ(ratios.at("a"), ratios.at("b"));
  EXPECT_NE(ratios.at("a"), ratios.at("c"));
}

}  // namespace
}  // namespace longhaul::optim
