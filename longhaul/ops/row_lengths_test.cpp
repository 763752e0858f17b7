// The tests compare rows of trained lengths with LibTorch's own operations and gradients.
#include "longhaul/ops/row_lengths.h"

#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

TEST(RowLengths, AreThoseOfTheSum) {
  at::manual_seed(1);
  // W has more elements than a block, and the last block is not full.
  const at::Tensor w = at::randn({5000, 1000}), a = at::randn({3, 1000}),
                   b = at::randn({5000, 3});
  const at::Tensor squares = row_squares(w, a, b, 0.25);
  const at::Tensor whole =
      w.to(at::kDouble) + 0.25 * b.to(at::kDouble).mm(a.to(at::kDouble));
  expect_close(squares, whole.square().sum(1).to(at::kFloat), 1e-5, "squares");
  EXPECT_FALSE(squares.requires_grad());
}

TEST(RowLengths, ScaleColumnsAndTakeTheLengthsAsConstants) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::manual_seed(2);
    const tensor::ParameterPtr magnitude = bound(at::rand({6}).add(0.5).to(type));
    const at::Tensor lengths = at::rand({6}) + 1.0;
    const at::Tensor values = at::randn({9, 6}).to(type), dy = at::randn({9, 6}).to(type);
    const at::Tensor y = leaf(values);
    const at::Tensor out = with_row_lengths(y, magnitude, lengths);
    torch::autograd::backward({out}, {dy});

    const at::Tensor m = leaf(magnitude->weight().to(at::kFloat));
    const at::Tensor wide = leaf(values.to(at::kFloat));
    const at::Tensor right = wide * (m / lengths);
    torch::autograd::backward({right}, {dy.to(at::kFloat)});
    expect_close(out, right.to(type), tolerance_of(type), "y");
    expect_close(y.grad(), wide.grad().to(type), tolerance_of(type), "dy");
    expect_close(magnitude->grad(), m.grad(), tolerance_of(type), "dm");
  }
}

TEST(RowLengths, LeaveAFrozenMagnitudeAsItIs) {
  const tensor::ParameterPtr magnitude = bound(at::ones({2}));
  magnitude->set_frozen(true);
  const at::Tensor y = leaf(at::ones({1, 2}));
  torch::autograd::backward({with_row_lengths(y, magnitude, at::ones({2}) * 2.0)},
                            {at::ones({1, 2})});
  EXPECT_EQ(magnitude->grad().sum().item<float>(), 0.0F);
  expect_close(y.grad(), at::full({1, 2}, 0.5), 1e-7, "dy");
}

}  // namespace
}  // namespace longhaul::ops
