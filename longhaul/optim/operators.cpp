#include "longhaul/optim/operators.h"

#include <vector>

#include "longhaul/ops/fused/fused_operator.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/kernels/lamb_kernel.h"
#include "longhaul/optim/lamb_composite.h"
#include "longhaul/optim/operator_kernels.h"

namespace longhaul::optim {
namespace {

using at::Tensor;
using Scalars = c10::ArrayRef<double>;
using Numbers = c10::IntArrayRef;

// For kernels of any device, on flat contiguous memory of fp32 or bf16. `scalars` are
// those of AdamWScalars in their order, and element.h has the formulas; `rounding` is
// empty, or says how bf16 masters, which are the weights, and bf16 moments are rounded:
// the key and the place of ElementPlace. `weight` may be `master`.
TORCH_LIBRARY_FRAGMENT(longhaul, library) {
  library.def(
      "adamw(Tensor gradient, Tensor(a!) master, Tensor(b!) exp_avg, "
      "Tensor(c!) exp_avg_sq, Tensor(d!) weight, float[] scalars, int update, "
      "int[] rounding) -> ()");
  // Masters stay; LambSums are added to `sums`, fp64 [2].
  library.def(
      "lamb_moments(Tensor gradient, Tensor master, Tensor(a!) exp_avg, "
      "Tensor(b!) exp_avg_sq, float[] scalars, float decay, int update, "
      "int[] rounding, Tensor(c!) sums) -> ()");
  // `rate`: fp64, one element, read when the kernel runs; `of_rate`: those of LambRate.
  library.def(
      "lamb_apply(Tensor(a!) master, Tensor exp_avg, Tensor exp_avg_sq, Tensor rate, "
      "Tensor(b!) weight, float[] scalars, float[] of_rate, int update, "
      "int[] rounding) -> ()");
  // Adds that of x[i] to into[places[i]], fp64, one after the other. All of one dtype.
  library.def("add_squares(Tensor[] x, int[] places, Tensor(a!) into) -> ()");
}

struct OnCpu {
  static void adamw(const AdamWRange& range, const AdamWScalars& s, int64_t update,
                    at::Device /*device*/) {
    adamw_loop(range, s, update);
  }
  static void lamb_moments(const AdamWRange& range, const AdamWScalars& s, float decay,
                           int64_t update, double* sums, at::Device /*device*/) {
    const LambSums added = lamb_moments_loop(range, s, decay, update);
    sums[0] += added.weight;
    sums[1] += added.update;
  }
  static void lamb_apply(const AdamWRange& range, const AdamWScalars& s,
                         const LambRate& of, const double* rate, int64_t update,
                         at::Device /*device*/) {
    lamb_apply_loop(range, lamb_scalars_at(s, of, *rate), update);
  }
  static void add_squares(std::span<const SquaresRange> parts, DType dtype,
                          at::Device /*device*/) {
    for (const SquaresRange& part : parts) {
      *part.into += sum_of_squares(part.x, part.count, dtype);
    }
  }
};

TORCH_LIBRARY_IMPL(longhaul, CPU, library) { register_updates<OnCpu>(library); }

template <typename Signature>
using Operator = ops::fused::Operator<Signature>;

/// Found once, after the libraries above were registered.
struct UpdateOperators {
  Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                Scalars, int64_t, Numbers)>
      adamw{"longhaul::adamw"};
  Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, Scalars,
                double, int64_t, Numbers, const Tensor&)>
      lamb_moments{"longhaul::lamb_moments"};
  Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                Scalars, Scalars, int64_t, Numbers)>
      lamb_apply{"longhaul::lamb_apply"};
  Operator<void(at::TensorList, Numbers, const Tensor&)> add_squares{
      "longhaul::add_squares"};
};

const UpdateOperators& operators() {
  static const UpdateOperators found;
  return found;
}

}  // namespace

void update_adamw(const AdamWTensors& t, const AdamWStep& step) {
  const auto& adamw = operators().adamw;
  if (!adamw.serves(t.master)) return adamw_composite(t, step);
  adamw.on(t.master, t.gradient, t.master, t.exp_avg, t.exp_avg_sq, t.weight,
           list_of(adamw_scalars(step)), step.update, list_of(t.rounding));
}

void update_lamb_moments(const AdamWTensors& t, const AdamWStep& step,
                         const Tensor& sums) {
  const auto& moments = operators().lamb_moments;
  if (!moments.serves(t.master)) return lamb_moments_composite(t, step, sums);
  moments.on(t.master, t.gradient, t.master, t.exp_avg, t.exp_avg_sq,
             list_of(lamb_moments_scalars(step)), step.weight_decay, step.update,
             list_of(t.rounding), sums);
}

void apply_lamb(const AdamWTensors& t, const AdamWStep& step, const Tensor& rate) {
  const auto& apply = operators().lamb_apply;
  if (!apply.serves(t.master)) return lamb_apply_composite(t, step, rate);
  apply.on(t.master, t.master, t.exp_avg, t.exp_avg_sq, rate, t.weight,
           list_of(lamb_apply_scalars(step)), list_of(lamb_rate(step)), step.update,
           list_of(t.rounding));
}

void add_squares(at::TensorList x, at::IntArrayRef places, const Tensor& into) {
  if (x.empty()) return;
  const auto& add = operators().add_squares;
  if (add.serves(into)) return add.on(into, x, places, into);
  for (size_t i = 0; i < x.size(); ++i) {
    add_squares_composite(x[i], into.narrow(0, places[i], 1));
  }
}

}  // namespace longhaul::optim
