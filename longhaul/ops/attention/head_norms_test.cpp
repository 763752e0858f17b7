// The tests check that norms of heads which are slices of one matrix equal norms of
// copies of the heads, and that the gradients are slices of one matrix as well.
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/rms_norm.h"
#include "tests/support/parameters.h"
#include "tests/support/side_by_side.h"

namespace longhaul::ops {
namespace {

struct NormCase {
  int64_t tokens, query_heads, key_heads, dim;
  /// The order of q (0), k (1) and v (2) in the columns of the matrix.
  std::vector<size_t> order = {0, 1, 2};
};

const std::vector<NormCase> kNormCases = {{2, 1, 1, 8},
                                          {5, 3, 1, 37},
                                          {70, 4, 2, 32},
                                          {33, 8, 8, 20, {1, 2, 0}},
                                          {130, 5, 1, 128, {2, 0, 1}}};

class HeadNorm : public NormTest {};
INSTANTIATE_TEST_SUITE_P(All, HeadNorm, every_norm(), name_of_norm);

/// q, k and v in a matrix of random values.
struct InOneMatrix {
  InOneMatrix(const NormCase& c, at::ScalarType type)
      : matrix(at::randn({c.tokens, (c.query_heads + 2 * c.key_heads) * c.dim}).to(type)),
        parts(3) {
    int64_t from = 0;
    for (const size_t i : c.order) {
      const int64_t heads = i == 0 ? c.query_heads : c.key_heads;
      parts[i] = matrix.narrow(1, from, heads * c.dim).view({c.tokens, heads, c.dim});
      from += heads * c.dim;
    }
  }
  /// Returns q, k and v as leaves of a graph, in the matrix or, with `apart`, each in
  /// memory of its own.
  std::vector<at::Tensor> leaves(bool apart) const {
    std::vector<at::Tensor> out;
    for (const at::Tensor& x : parts) {
      const at::Tensor own = apart ? x.clone(at::MemoryFormat::Contiguous) : x.detach();
      out.push_back(own.set_requires_grad(true));
    }
    return out;
  }
  at::Tensor matrix;
  std::vector<at::Tensor> parts;
};

TEST_P(HeadNorm, OverPartsOfOneMatrixHasTheBitsOfNormsOverCopies) {
  for (const NormCase& c : kNormCases) {
    SCOPED_TRACE(c.dim);
    at::manual_seed(8);
    const InOneMatrix x(c, type()), dy(c, type());
    const at::Tensor w_q = at::randn({c.dim}).to(type()),
                     w_k = at::randn({c.dim}).to(type());
    const HeadNorms norms{bound(w_q), bound(w_k), 1e-5, form()};
    const auto in = x.leaves(/*apart=*/false);
    const Heads out = rms_norm_heads({in[0], in[1], in[2]}, norms, fused());
    const auto dx = torch::autograd::grad({out.q, out.k, out.v}, in, dy.parts);

    const HeadNorms plain{bound(w_q), bound(w_k), 1e-5, form()};
    const auto copies = x.leaves(/*apart=*/true);
    for (const size_t i : {0, 1}) {
      const tensor::ParameterPtr& weight = i == 0 ? plain.q : plain.k;
      const at::Tensor y =
          rms_norm(copies[i].view({-1, c.dim}), weight, 1e-5, fused(), form());
      backward(y, dy.parts[i].reshape({-1, c.dim}));
      const at::Tensor& mine = i == 0 ? out.q : out.k;
      EXPECT_TRUE(mine.is_contiguous());
      EXPECT_TRUE(at::equal(mine, y.view(mine.sizes())));
      EXPECT_TRUE(at::equal(dx[i], copies[i].grad()));
      EXPECT_TRUE(at::equal((i == 0 ? norms.q : norms.k)->grad(), weight->grad()));
    }
    EXPECT_TRUE(at::equal(out.v, x.parts[2]));
    EXPECT_TRUE(at::equal(dx[2], dy.parts[2]));
    // The composite form of bf16 copies v, so that the result does not keep the matrix.
    EXPECT_EQ(out.v.is_alias_of(x.matrix), fused() || type() == at::kFloat);
    if (!fused()) continue;
    const auto rows = testing::as_rows(dx);
    std::vector<at::Tensor> in_order;
    for (const size_t i : c.order) in_order.push_back(rows[i]);
    EXPECT_TRUE(joined_columns(in_order).defined());
  }
}

TEST_P(HeadNorm, OfHeadsInMemoriesOfTheirOwnCopiesNoGradientOfTheValues) {
  at::manual_seed(9);
  const NormCase& c = kNormCases[1];
  const InOneMatrix x(c, type()), dy(c, type());
  const HeadNorms norms{bound(at::randn({c.dim}).to(type())),
                        bound(at::randn({c.dim}).to(type())), 1e-5, form()};
  const auto in = x.leaves(/*apart=*/true);
  const Heads out = rms_norm_heads({in[0], in[1], in[2]}, norms, fused());
  const auto dx = torch::autograd::grad({out.q, out.k, out.v}, in, dy.parts);
  EXPECT_TRUE(out.v.is_alias_of(in[2]));
  EXPECT_TRUE(dx[2].is_alias_of(dy.matrix));
  EXPECT_TRUE(dx[0].is_contiguous() && dx[1].is_contiguous());
}

TEST(HeadNormInput, OfAnotherWidthThanTheWeightIsRefused) {
  const HeadNorms norms{bound(at::ones({8})), bound(at::ones({4})), 1e-5};
  const at::Tensor x = at::ones({3, 2, 8});
  EXPECT_ANY_THROW(rms_norm_heads({x, x, x}, norms, true));
}

}  // namespace
}  // namespace longhaul::ops
