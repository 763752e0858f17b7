#include "longhaul/optim/operators.h"

#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/kernels/lamb.h"
#include "longhaul/optim/operator_kernels.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::optim {
namespace {

TORCH_LIBRARY_FRAGMENT(longhaul, library) {
  ops::fused::declare(library, op::adamw, op::lamb_moments, op::lamb_apply,
                      op::add_squares);
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
  static void add_squares(std::span<const SquaresRange> parts, format::DType dtype,
                          at::Device /*device*/) {
    for (const SquaresRange& part : parts) {
      *part.into += sum_of_squares(part.x, part.count, dtype);
    }
  }
};

TORCH_LIBRARY_IMPL(longhaul, CPU, library) { implement_updates<OnCpu>(library); }

/// Returns the elements of which a composite form takes at a time: 0 for its own number,
/// and all where a tensor can only be written whole.
int64_t most_at_once(const at::Tensor& master) {
  return tensor::limits_of(master.device()).writes_views ? 0 : master.numel();
}

}  // namespace

void update_adamw(const AdamWTensors& t, const AdamWStep& step) {
  if (!op::adamw.serves(t.master)) {
    return adamw_composite(t, step, most_at_once(t.master));
  }
  op::adamw(t.gradient, t.master, t.exp_avg, t.exp_avg_sq, t.weight, adamw_scalars(step),
            step.update, t.rounding);
}

void update_lamb_moments(const AdamWTensors& t, const AdamWStep& step,
                         const at::Tensor& sums) {
  if (!op::lamb_moments.serves(t.master)) return lamb_moments_composite(t, step, sums);
  op::lamb_moments(t.gradient, t.master, t.exp_avg, t.exp_avg_sq,
                   lamb_moments_scalars(step), step.weight_decay, step.update, t.rounding,
                   sums);
}

void apply_lamb(const AdamWTensors& t, const AdamWStep& step, const at::Tensor& rate) {
  if (!op::lamb_apply.serves(t.master)) {
    return lamb_apply_composite(t, step, rate, most_at_once(t.master));
  }
  op::lamb_apply(t.master, t.exp_avg, t.exp_avg_sq, rate, t.weight,
                 lamb_apply_scalars(step), lamb_rate(step), step.update, t.rounding);
}

void add_squares(at::TensorList x, at::IntArrayRef places, const at::Tensor& into) {
  if (x.empty()) return;
  if (op::add_squares.serves(into)) return op::add_squares(x, places, into);
  for (size_t i = 0; i < x.size(); ++i) {
    add_squares_composite(x[i], into.narrow(0, places[i], 1));
  }
}

}  // namespace longhaul::optim
