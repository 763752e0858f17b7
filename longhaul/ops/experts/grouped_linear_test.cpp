// The tests check that products of experts whose weights lie side by side in a bucket
// have the results and gradients of one product after another.
#include "longhaul/ops/experts/grouped_linear.h"

#include <c10/core/StorageImpl.h>

#include <optional>

#include "longhaul/ops/fused/library_op.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/tensor/flat_buffers.h"
#include "tests/support/counted.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

struct Types {
  at::ScalarType compute, gradients;
};

/// Where the weights of experts lie.
enum class Lie { Apart, SideBySide };

constexpr int64_t kFeatures = 64;

struct TestExperts {
  TestExperts(int experts, const std::vector<int64_t>& widths, Types of, Lie lie)
      : types(of) {
    at::manual_seed(3);
    std::vector<tensor::FlatParameter> placed;
    std::vector<at::Tensor> values;
    for (int e = 0; e < experts; ++e) {
      weights.emplace_back();
      for (const int64_t width : widths) {
        const auto name = std::to_string(e) + "." + std::to_string(weights[0].size());
        const auto p = tensor::make_parameter(name, {width, kFeatures}, {});
        values.push_back(at::randn({width, kFeatures}).to(types.compute));
        p->set_frozen(false);
        if (lie == Lie::Apart) {
          p->bind(values.back().clone(), at::zeros({width, kFeatures}, types.gradients));
        }
        weights.back().push_back(p);
        placed.insert(placed.begin(), {p, {}});  // a bucket begins with the last
      }
    }
    if (lie == Lie::Apart) return;
    tensor::DTypePolicy policy;
    const auto dtype = [](at::ScalarType type) {
      return type == at::kFloat ? format::DType::F32 : format::DType::BF16;
    };
    policy.compute = dtype(types.compute);
    policy.gradients = dtype(types.gradients);
    buffers.emplace(placed, policy, at::kCPU);
    size_t next = 0;
    for_each([&](tensor::Parameter& w) {
      at::Tensor(w.weight()).copy_(values[next++]);
      w.grad();
    });
  }

  template <typename Body>
  void for_each(const Body& body) const {
    for (const auto& expert : weights) {
      for (const tensor::ParameterPtr& w : expert) body(*w);
    }
  }

  Types types;
  ExpertWeights weights;
  std::optional<tensor::FlatBuffers> buffers;
};

/// The results, the gradient of the rows, and the gradients of the weights.
using Found = std::vector<at::Tensor>;

Found run_once(const TestExperts& experts, const std::vector<int32_t>& offsets,
               bool fused) {
  at::manual_seed(4);
  const at::ScalarType type = experts.types.compute;
  const at::Tensor x = leaf(at::randn({offsets.back(), kFeatures}).to(type));
  const auto queue = std::make_shared<WeightGradients>();
  queue->set_immediate(false);
  const auto y =
      grouped_linear(x, at::tensor(offsets, at::kInt), experts.weights, queue, fused);
  Found found;
  std::vector<at::Tensor> dy;
  for (const at::Tensor& part : y) {
    dy.push_back(at::randn(part.sizes()).to(type));
    found.push_back(part.detach().clone());
  }
  torch::autograd::backward(y, dy);
  queue->drain();
  found.push_back(x.grad());
  experts.for_each([&](tensor::Parameter& w) {
    if (!w.frozen()) found.push_back(w.grad().clone());
  });
  return found;
}

void expect_alike(const Found& a, const Found& b, at::ScalarType type) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    expect_close(a[i], b[i], tolerance_of(type), "result " + std::to_string(i));
  }
}

class GroupedLinear : public ::testing::TestWithParam<Types> {};

INSTANTIATE_TEST_SUITE_P(All, GroupedLinear,
                         ::testing::Values(Types{at::kFloat, at::kFloat},
                                           Types{at::kBFloat16, at::kFloat},
                                           Types{at::kBFloat16, at::kBFloat16}),
                         [](const auto& which) {
                           const auto name = [](at::ScalarType type) {
                             return type == at::kFloat ? "Fp32" : "Bf16";
                           };
                           return std::string(name(which.param.compute)) + "With" +
                                  name(which.param.gradients);
                         });

/// Offsets of the rows of five experts: equal numbers of rows, some experts without rows,
/// a single row, all rows in one expert, and no rows.
const std::vector<std::vector<int32_t>> kOffsets = {{0, 16, 32, 48, 64, 80},
                                                    {0, 0, 33, 33, 40, 40},
                                                    {0, 0, 0, 1, 1, 1},
                                                    {0, 0, 0, 0, 70, 70},
                                                    {0, 0, 0, 0, 0, 0}};

struct Widths {
  std::vector<int64_t> of;
  int products;  ///< of a forward
};
// A weight of 24 rows of kFeatures elements is no multiple of kFlatAlign. A gap follows
// it, so that the next weight is not in the same product.
const std::vector<Widths> kWidths = {
    {{32, 32}, 1}, {{48}, 1}, {{24, 24}, 2}, {{24, 40}, 2}, {{16, 24, 16}, 2}};

TEST_P(GroupedLinear, GivesTheResultsAndGradientsOfOneProductAfterAnother) {
  for (const auto& [widths, products] : kWidths) {
    for (const auto& offsets : kOffsets) {
      const TestExperts apart(5, widths, GetParam(), Lie::Apart);
      const TestExperts together(5, widths, GetParam(), Lie::SideBySide);
      const Counted calls;
      const auto found = run_once(together, offsets, true);
      EXPECT_EQ(calls.of("longhaul::grouped_product"), 2 * products) << widths;
      EXPECT_EQ(calls.of("longhaul::grouped_gradient"), products) << widths;
      expect_alike(found, run_once(apart, offsets, false), GetParam().compute);
    }
  }
}

TEST_P(GroupedLinear, OfWeightsThatLieApartIsOneProductAfterAnother) {
  const TestExperts apart(5, {32, 32}, GetParam(), Lie::Apart);
  const Counted calls;
  run_once(apart, kOffsets[1], true);
  EXPECT_EQ(calls.of("longhaul::grouped_product"), 0);
}

TEST_P(GroupedLinear, WritesGradientsThatAreUnsetAndAddsToOthers) {
  const TestExperts apart(5, {32, 32}, GetParam(), Lie::Apart);
  for (const bool all : {true, false}) {
    const TestExperts together(5, {32, 32}, GetParam(), Lie::SideBySide);
    bool unset = true;
    together.for_each([&](tensor::Parameter& w) {
      if (!unset) return;
      at::Tensor(w.grad()).fill_(7.0);  // the value has no meaning
      w.unset_grad();
      unset = all;
    });
    apart.for_each([](tensor::Parameter& w) { at::Tensor(w.grad()).zero_(); });
    for (int i = 0; i < 2; ++i) {
      expect_alike(run_once(together, kOffsets[1], true),
                   run_once(apart, kOffsets[1], false), GetParam().compute);
    }
  }
}

TEST_P(GroupedLinear, LeavesFrozenWeightsAsTheyAre) {
  for (const size_t frozen : {size_t{1}, size_t{5}}) {
    const TestExperts apart(5, {32, 32}, GetParam(), Lie::Apart);
    const TestExperts together(5, {32, 32}, GetParam(), Lie::SideBySide);
    for (const TestExperts* experts : {&apart, &together}) {
      for (size_t e = 0; e < frozen; ++e) {
        for (const auto& w : experts->weights[e]) w->set_frozen(true);
      }
    }
    const auto found = run_once(together, kOffsets[0], true);
    expect_alike(found, run_once(apart, kOffsets[0], false), GetParam().compute);
    together.for_each([](tensor::Parameter& w) {
      if (!w.frozen()) return;
      EXPECT_EQ(w.grad().count_nonzero().item<int64_t>(), 0);
    });
  }
}

/// If some experts are trained, the rows of all experts are kept.
TEST_P(GroupedLinear, KeepsItsRowsUnlessAllWeightsAreFrozen) {
  for (const size_t frozen : {size_t{0}, size_t{1}, size_t{5}}) {
    const TestExperts experts(5, {32, 32}, GetParam(), Lie::SideBySide);
    for (size_t e = 0; e < frozen; ++e) {
      for (const auto& w : experts.weights[e]) w->set_frozen(true);
    }
    const at::Tensor x = leaf(at::ones({80, kFeatures}).to(GetParam().compute));
    c10::weak_intrusive_ptr<c10::StorageImpl> storage(
        c10::intrusive_ptr<c10::StorageImpl>{});
    std::vector<at::Tensor> y;
    {
      const at::Tensor rows = x.neg();  // keeps nothing
      storage = rows.storage().getWeakStorageImpl();
      y = grouped_linear(rows, at::tensor(kOffsets[0], at::kInt), experts.weights,
                         std::make_shared<WeightGradients>(), true);
    }
    EXPECT_EQ(storage.expired(), frozen == 5) << frozen;
    torch::autograd::backward(y, {at::ones_like(y[0]), at::ones_like(y[1])});
    EXPECT_TRUE(x.grad().defined());
  }
}

TEST_P(GroupedLinear, HasTheSameResultsWithoutAGraph) {
  const TestExperts together(5, {32, 32}, GetParam(), Lie::SideBySide);
  const auto found = run_once(together, kOffsets[1], true);
  at::manual_seed(4);
  const at::Tensor x = at::randn({40, kFeatures}).to(GetParam().compute);
  const at::NoGradGuard no_grad;
  const auto y = grouped_linear(x, at::tensor(kOffsets[1], at::kInt), together.weights,
                                nullptr, true);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(at::equal(y[i], found[i]));
}

TEST(GroupedLinearOnADevice, SaysWhyTheHostWaitsForOffsets) {
  const std::vector<int64_t> even = {32, 64};
  const auto why = [&](at::ScalarType type, const std::string& name, bool fused = true) {
    return describe_offset_waits(type, at::kCUDA, name, fused, even);
  };
  EXPECT_EQ(describe_offset_waits(at::kFloat, at::kCPU, "cpu", false, {37}), "");
  EXPECT_EQ(why(at::kBFloat16, "NVIDIA H100 sm_90", false), "run.fused is false");
  EXPECT_EQ(why(at::kFloat, "NVIDIA H100 sm_90"),
            "LibTorch's grouped product is in bf16 alone, which precision.compute "
            "chooses");
  EXPECT_EQ(describe_offset_waits(at::kBFloat16, at::kPrivateUse1, "a card", true, even),
            "a card has no grouped product");
  EXPECT_EQ(
      describe_offset_waits(at::kBFloat16, at::kCUDA, "NVIDIA H100 sm_90", true,
                            {32, 306}),
      "LibTorch's grouped product takes sizes that are multiples of 8, and matrices "
      "of experts have 306 rows or columns on a rank; the model's sizes and "
      "parallel.tp decide about them");
  const LibraryOp grouped("aten::_grouped_mm", "", "self mat2 offs");
  if (!grouped.serves(at::kCUDA)) GTEST_SKIP() << grouped.obstacle(at::kCUDA);
  for (const char* name : {"NVIDIA A100 sm_80", "NVIDIA RTX PRO 6000 sm_120", "GPU"}) {
    EXPECT_NE(why(at::kBFloat16, name).find("a loop on " + std::string(name)),
              std::string::npos);
  }
  for (const char* name : {"NVIDIA H100 sm_90", "NVIDIA B200 sm_100", "B300 sm_103"}) {
    EXPECT_EQ(why(at::kBFloat16, name).find("a loop"), std::string::npos) << name;
  }
}

TEST(Stacked, AreMatricesAtEqualDistances) {
  const at::Tensor all = at::arange(100);
  const auto at = [&](int64_t from, int64_t rows = 3) {
    return all.narrow(0, from, 2 * rows).view({rows, 2});
  };
  const at::Tensor stack = stacked({at(4), at(14), at(24)});
  ASSERT_TRUE(stack.defined());
  EXPECT_EQ(stack.sizes(), at::IntArrayRef({3, 3, 2}));
  EXPECT_TRUE(at::equal(stack[2], at(24)));
  EXPECT_TRUE(stacked({at(4)}).defined());
  EXPECT_FALSE(stacked({at(4), at(14), at(25)}).defined());
  EXPECT_FALSE(stacked({at(24), at(14), at(4)}).defined()) << "descending";
  EXPECT_FALSE(stacked({at(4), at(8)}).defined()) << "overlapping";
  EXPECT_FALSE(stacked({at(4), at(14, 4)}).defined());
  EXPECT_FALSE(stacked({at(4), at(14).clone()}).defined());
}

/// GPUs use this operator of LibTorch, whose form for a CPU is a loop.
TEST(LibraryGroupedProduct, TakesRowsByTheEndsOfExperts) {
  const LibraryOp grouped("aten::_grouped_mm", "", "self mat2 offs");
  if (!c10::Dispatcher::singleton().findSchema({"aten::_grouped_mm", ""})) GTEST_SKIP();
  const at::Tensor x = at::randn({40, 64}).to(at::kBFloat16);
  const at::Tensor w = at::randn({5, 32, 64}).to(at::kBFloat16);
  const at::Tensor offsets = at::tensor(kOffsets[1], at::kInt);
  for (const bool forward : {true, false}) {
    const at::Tensor in = forward ? x : x.narrow(1, 16, 32);
    const at::Tensor b = forward ? w.transpose(1, 2) : w;
    const at::Tensor y =
        grouped.call({{"self", in}, {"mat2", b}, {"offs", offsets.narrow(0, 1, 5)}})[0]
            .toTensor();
    for (int64_t e = 0; e < 5; ++e) {
      const int64_t first = kOffsets[1][static_cast<size_t>(e)];
      const int64_t rows = kOffsets[1][static_cast<size_t>(e) + 1] - first;
      if (rows == 0) continue;
      expect_close(y.narrow(0, first, rows),
                   at::mm(in.narrow(0, first, rows).to(at::kFloat), b[e].to(at::kFloat)),
                   tolerance_of(at::kBFloat16), "expert " + std::to_string(e));
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
