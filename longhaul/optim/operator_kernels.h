#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused/operator.h"
#include "longhaul/optim/kernels/adamw.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/tensor/scalar_type.h"

namespace longhaul::ops::fused {

template <>
struct Wire<optim::AdamWScalars> : WireOfNumbers<optim::AdamWScalars, float> {};
template <>
struct Wire<optim::LambRate> : WireOfNumbers<optim::LambRate, double> {};

/// A rounding as a list of integers: the key and the members of ElementPlace. An absent
/// rounding is an empty list.
template <>
struct Wire<std::optional<optim::Rounding>> {
  static constexpr ops::fused::Text kSchema = "int[]";
  using Type = at::IntArrayRef;
  static std::vector<int64_t> pack(const std::optional<optim::Rounding>& rounding) {
    if (!rounding) return {};
    const optim::ElementPlace& place = rounding->place;
    return {std::bit_cast<int64_t>(rounding->key), place.begin, place.row, place.stride,
            place.first};
  }
  static std::optional<optim::Rounding> unpack(Type list) {
    if (list.empty()) return std::nullopt;
    LH_ASSERT(list.size() == 5, "{} numbers of a rounding", list.size());
    return optim::Rounding{std::bit_cast<uint64_t>(list[0]),
                           {list[1], list[2], list[3], list[4]}};
  }
};

}  // namespace longhaul::ops::fused

namespace longhaul::optim {

// The updates as operators of LibTorch's dispatcher, for which any device may bring
// kernels. The function implement_updates() makes kernels from functions on raw pointers.
// It turns tensors into ranges, in the same way for every device that works in its own
// memory. Tensors are flat and contiguous, fp32 or bf16; element.h has the formulas.
// `rounding` says how bf16 masters, which are the weights, and bf16 moments are rounded.
// Without `rounding` moments are rounded to the nearest.

namespace op {

using ops::fused::Argument, ops::fused::In, ops::fused::Out;

/// Makes an update of AdamW. `weight` may be `master`.
inline constexpr ops::fused::Operator<
    "adamw", In<"gradient">, Out<"master">, Out<"exp_avg">, Out<"exp_avg_sq">,
    Out<"weight">, Argument<AdamWScalars, "scalars">, Argument<int64_t, "update">,
    Argument<std::optional<Rounding>, "rounding">>
    adamw{};
/// Makes the first pass of LAMB: leaves masters as they are, and adds LambSums to `sums`,
/// fp64 [2].
inline constexpr ops::fused::Operator<
    "lamb_moments", In<"gradient">, In<"master">, Out<"exp_avg">, Out<"exp_avg_sq">,
    Argument<AdamWScalars, "scalars">, Argument<double, "decay">,
    Argument<int64_t, "update">, Argument<std::optional<Rounding>, "rounding">,
    Out<"sums">>
    lamb_moments{};
/// Makes the second pass of LAMB. `rate`, fp64 of one element, is read when the kernel
/// runs.
inline constexpr ops::fused::Operator<
    "lamb_apply", Out<"master">, In<"exp_avg">, In<"exp_avg_sq">, In<"rate">,
    Out<"weight">, Argument<AdamWScalars, "scalars">, Argument<LambRate, "of_rate">,
    Argument<int64_t, "update">, Argument<std::optional<Rounding>, "rounding">>
    lamb_apply{};
/// Adds sum_of_squares of x[i] to into[places[i]], fp64, one after the other. All x have
/// one dtype.
inline constexpr ops::fused::Operator<"add_squares", Argument<at::TensorList, "x">,
                                      Argument<at::IntArrayRef, "places">, Out<"into">>
    add_squares{};

}  // namespace op

/// Returns the range of these tensors. Throws Error (Internal) for dtypes that the loops
/// do not know.
inline AdamWRange range_of(const at::Tensor& gradient, const at::Tensor& master,
                           const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                           const at::Tensor& weight, int64_t update,
                           const std::optional<Rounding>& rounding) {
  const AdamWRange range{master.numel(),
                         gradient.data_ptr(),
                         tensor::from_scalar_type(gradient.scalar_type()),
                         master.data_ptr(),
                         exp_avg.data_ptr(),
                         exp_avg_sq.data_ptr(),
                         tensor::from_scalar_type(exp_avg.scalar_type()),
                         weight.data_ptr(),
                         tensor::from_scalar_type(weight.scalar_type()),
                         rounding ? &*rounding : nullptr};
  check_range(range, update);
  return range;
}

/// Gives `library` a kernel for each update. The kernels call functions of Launch with
/// ranges and, as the last argument, the device of their memory.
template <typename Launch>
void implement_updates(torch::Library& library) {
  using at::Tensor;
  op::adamw.implement(
      library, [](const Tensor& gradient, const Tensor& master, const Tensor& exp_avg,
                  const Tensor& exp_avg_sq, const Tensor& weight, const AdamWScalars& s,
                  int64_t update, const std::optional<Rounding>& rounding) {
        Launch::adamw(
            range_of(gradient, master, exp_avg, exp_avg_sq, weight, update, rounding), s,
            update, master.device());
      });
  op::lamb_moments.implement(
      library,
      [](const Tensor& gradient, const Tensor& master, const Tensor& exp_avg,
         const Tensor& exp_avg_sq, const AdamWScalars& s, double decay, int64_t update,
         const std::optional<Rounding>& rounding, const Tensor& sums) {
        Launch::lamb_moments(
            range_of(gradient, master, exp_avg, exp_avg_sq, master, update, rounding), s,
            static_cast<float>(decay), update, static_cast<double*>(sums.data_ptr()),
            master.device());
      });
  op::lamb_apply.implement(library, [](const Tensor& master, const Tensor& exp_avg,
                                       const Tensor& exp_avg_sq, const Tensor& rate,
                                       const Tensor& weight, const AdamWScalars& s,
                                       const LambRate& of_rate, int64_t update,
                                       const std::optional<Rounding>& rounding) {
    Launch::lamb_apply(
        range_of(master, master, exp_avg, exp_avg_sq, weight, update, rounding), s,
        of_rate, static_cast<const double*>(rate.data_ptr()), update, master.device());
  });
  op::add_squares.implement(
      library, [](at::TensorList x, at::IntArrayRef places, const Tensor& into) {
        LH_ASSERT(x.size() == places.size(), "{} tensors, {} places", x.size(),
                  places.size());
        std::vector<SquaresRange> parts;
        for (size_t i = 0; i < x.size(); ++i) {
          LH_ASSERT(x[i].scalar_type() == x[0].scalar_type(), "sums of {} and {}",
                    c10::toString(x[0].scalar_type()), c10::toString(x[i].scalar_type()));
          parts.push_back({x[i].data_ptr(), x[i].numel(),
                           static_cast<double*>(into.data_ptr()) + places[i]});
        }
        if (parts.empty()) return;
        Launch::add_squares(std::span<const SquaresRange>(parts),
                            tensor::from_scalar_type(x[0].scalar_type()), into.device());
      });
}

}  // namespace longhaul::optim
