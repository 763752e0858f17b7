// The tests compare each form of the RMS norm to the expression that transformers has for
// it.
#include "longhaul/ops/rms_norm.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

/// Returns the norm as modeling_llama.py, modeling_olmo2.py and modeling_gemma3.py write
/// it. For an fp64 input everything is computed in fp64.
at::Tensor as_transformers(const at::Tensor& x, const at::Tensor& w, RmsForm form) {
  const at::ScalarType type = x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor states = x.to(wide);
  const at::Tensor normal = states * at::rsqrt(states.pow(2).mean({-1}, true) + 1e-5);
  if (form == RmsForm::WeightAfterCast) return w * normal.to(type);
  if (form == RmsForm::WeightBeforeCast) return (w * normal).to(type);
  return (normal * (1.0 + w.to(wide))).to(type);
}

class RmsNormForms : public NormTest {
 protected:
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(type()); }
};
INSTANTIATE_TEST_SUITE_P(All, RmsNormForms, every_norm(), name_of_norm);

TEST_P(RmsNormForms, IsThatOfTransformersWithItsGradients) {
  struct Shape {
    int64_t rows, width;
  };
  for (const auto [rows, width] : {Shape{1, 1}, Shape{5, 37}, Shape{37, 96},
                                   Shape{70, 100}, Shape{3, 257}, Shape{0, 8}}) {
    SCOPED_TRACE(width);
    const at::Tensor x = random({rows, width}), w = random({width});
    const at::Tensor dy = random({rows, width});
    const auto weight = bound(w);
    const at::Tensor mine = leaf(x);
    const at::Tensor y = rms_norm(mine, weight, 1e-5, fused(), form());
    EXPECT_EQ(y.scalar_type(), type());
    backward(y, dy);
    for (const at::ScalarType of : {type(), at::kDouble}) {
      const at::Tensor their_x = leaf(x.to(of)), their_w = leaf(w.to(of));
      const at::Tensor theirs = as_transformers(their_x, their_w, form());
      backward(theirs, dy.to(of));
      if (of == type() && !fused()) {
        EXPECT_TRUE(at::equal(y, theirs));
      }
      expect_close(y, theirs, tolerance_of(type()), "y");
      // A row of one element is normed to 1 or -1, so that its gradient is only rounding.
      if (width > 1)
        expect_close(mine.grad(), their_x.grad(), tolerance_of(type()), "dx");
      expect_close(weight->grad(), their_w.grad(), tolerance_of(type()), "dw");
    }
  }
}

TEST_P(RmsNormForms, OfAResidualHaveTheBitsOfSumAndNormAndOneSumOfTheirGradients) {
  for (const bool adds : {true, false}) {
    SCOPED_TRACE(adds);
    const at::Tensor x = random({37, 97}), w = random({97}), dy = random({37, 97});
    const at::Tensor beside = random({37, 97});
    const at::Tensor delta = adds ? random({37, 97}) : at::Tensor();
    struct Residual {
      at::Tensor sum, normed, dx, ddelta, dweight;
    };
    const auto found = [&](bool as_one) {
      const auto weight = bound(w);
      const at::Tensor in = leaf(x), added = adds ? leaf(delta) : at::Tensor();
      ResidualNorm out;
      if (as_one) {
        out = residual_rms_norm(in, added, weight, 1e-5, fused(), form());
      } else {
        out.sum = adds ? in + added : in;
        out.normed = rms_norm(out.sum, weight, 1e-5, fused(), form());
      }
      backward(out.normed * 1.0 + out.sum * beside, dy);
      return Residual{out.sum, out.normed, in.grad(), adds ? added.grad() : at::Tensor(),
                      weight->grad()};
    };
    const Residual one = found(true), two = found(false);
    EXPECT_TRUE(at::equal(one.sum, two.sum));
    EXPECT_TRUE(at::equal(one.normed, two.normed));
    EXPECT_TRUE(at::equal(one.dweight, two.dweight));
    if (adds) {
      EXPECT_TRUE(at::equal(one.ddelta, one.dx));
    }
    // One rounding gives other bits than two, so that both gradients are compared to
    // those in fp64. A gradient that was lost or added twice would be far from these.
    const at::Tensor wide = leaf(one.sum.detach().to(at::kDouble));
    const at::Tensor wide_w = leaf(w.to(at::kDouble));
    backward(as_transformers(wide, wide_w, form()) + wide * beside.to(at::kDouble),
             dy.to(at::kDouble));
    expect_close(one.dx, wide.grad(), tolerance_of(type()), "dx");
    expect_close(two.dx, wide.grad(), tolerance_of(type()), "dx of two");
    expect_close(one.dweight, wide_w.grad(), tolerance_of(type()), "dw");
  }
}

TEST_P(RmsNormForms, OfAResidualWithoutAGraphAreTheSame) {
  const at::NoGradGuard guard;
  const at::Tensor x = random({5, 96}), delta = random({5, 96});
  const auto weight = bound(random({96}));
  const auto [sum, normed] = residual_rms_norm(x, delta, weight, 1e-5, fused(), form());
  EXPECT_TRUE(at::equal(sum, x + delta));
  EXPECT_TRUE(at::equal(normed, rms_norm(sum, weight, 1e-5, fused(), form())));
  EXPECT_ANY_THROW(
      residual_rms_norm(x, delta.narrow(0, 0, 4), weight, 1e-5, fused(), form()));
}

TEST_P(RmsNormForms, BeginWithTheNormAlone) {
  // The weights begin with 1, or with 0 in the form that adds 1 to the weight. With these
  // values every form is the norm alone.
  const at::Tensor x = random({21, 50}), dy = random({21, 50});
  const bool adds_one = form() == RmsForm::OnePlusWeight;
  const auto first = bound(at::full({50}, adds_one ? 0.0 : 1.0, type()));
  const auto ones = bound(at::ones({50}, type()));
  const at::Tensor mine = leaf(x), theirs = leaf(x);
  const at::Tensor y = rms_norm(mine, first, 1e-5, fused(), form());
  const at::Tensor plain = rms_norm(theirs, ones, 1e-5, fused());
  backward(y, dy);
  backward(plain, dy);
  EXPECT_TRUE(at::equal(y, plain));
  EXPECT_TRUE(at::equal(mine.grad(), theirs.grad()));
  expect_close(first->grad(), ones->grad(), tolerance_of(type()), "dw");
}

TEST_P(RmsNormForms, AreTwoOfFp32AndThreeOfBf16) {
  const at::Tensor x = random({21, 50}), dy = random({21, 50}), w = random({50});
  const auto weight = bound(w), other = bound(w);
  const at::Tensor mine = leaf(x), theirs = leaf(x);
  const at::Tensor y = rms_norm(mine, weight, 1e-5, fused(), form());
  const at::Tensor plain = rms_norm(theirs, other, 1e-5, fused());
  backward(y, dy);
  backward(plain, dy);
  const bool same = form() == RmsForm::WeightAfterCast ||
                    (form() == RmsForm::WeightBeforeCast && type() == at::kFloat);
  EXPECT_EQ(at::equal(y, plain), same);
  if (!same) return;
  EXPECT_TRUE(at::equal(mine.grad(), theirs.grad()));
  EXPECT_TRUE(at::equal(weight->grad(), other->grad()));
}

}  // namespace
}  // namespace longhaul::ops
