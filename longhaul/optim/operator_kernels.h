#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/kernels/adamw_kernel.h"
#include "longhaul/tensor/scalar_type.h"

// The operators of operators.cpp as loops on raw pointers: tensors become ranges, alike
// for every device that works in its memory.

namespace longhaul::optim {

using ScalarList = std::array<double, sizeof(AdamWScalars) / sizeof(float)>;

/// In the order of AdamWScalars.
inline ScalarList list_of(const AdamWScalars& s) {
  ScalarList list;
  std::ranges::copy(std::bit_cast<std::array<float, list.size()>>(s), list.begin());
  return list;
}
inline AdamWScalars scalars_of(c10::ArrayRef<double> list) {
  std::array<float, std::tuple_size_v<ScalarList>> values{};
  LH_ASSERT(list.size() == values.size(), "{} scalars of an update", list.size());
  std::ranges::transform(list, values.begin(),
                         [](double x) { return static_cast<float>(x); });
  return std::bit_cast<AdamWScalars>(values);
}

using RateList = std::array<double, sizeof(LambRate) / sizeof(double)>;

/// In the order of LambRate.
inline RateList list_of(const LambRate& rate) { return std::bit_cast<RateList>(rate); }
inline LambRate rate_of(c10::ArrayRef<double> list) {
  RateList values{};
  LH_ASSERT(list.size() == values.size(), "{} numbers of a rate", list.size());
  std::ranges::copy(list, values.begin());
  return std::bit_cast<LambRate>(values);
}

/// Empty: to the nearest. Else the key and the fields of ElementPlace.
inline std::vector<int64_t> list_of(const std::optional<Rounding>& rounding) {
  if (!rounding) return {};
  const ElementPlace& place = rounding->place;
  return {std::bit_cast<int64_t>(rounding->key), place.begin, place.row, place.stride,
          place.first};
}
inline std::optional<Rounding> rounding_of(c10::IntArrayRef list) {
  if (list.empty()) return std::nullopt;
  LH_ASSERT(list.size() == 5, "{} numbers of a rounding", list.size());
  return Rounding{std::bit_cast<uint64_t>(list[0]), {list[1], list[2], list[3], list[4]}};
}

/// Error (Internal) for dtypes that the loops do not know.
inline AdamWRange range_of(const at::Tensor& gradient, const at::Tensor& master,
                           const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                           const at::Tensor& weight, int64_t update,
                           const std::optional<Rounding>& rounding) {
  const AdamWRange range{master.numel(),
                         gradient.data_ptr(),
                         from_scalar_type(gradient.scalar_type()),
                         master.data_ptr(),
                         exp_avg.data_ptr(),
                         exp_avg_sq.data_ptr(),
                         from_scalar_type(exp_avg.scalar_type()),
                         weight.data_ptr(),
                         from_scalar_type(weight.scalar_type()),
                         rounding ? &*rounding : nullptr};
  check_range(range, update);
  return range;
}

/// Gives `library` every operator, by functions of Launch that get ranges and, last, the
/// device that their memory is of.
template <typename Launch>
void register_updates(torch::Library& library) {
  using at::Tensor;
  using Scalars = c10::ArrayRef<double>;
  library.impl(
      "adamw", [](const Tensor& gradient, const Tensor& master, const Tensor& exp_avg,
                  const Tensor& exp_avg_sq, const Tensor& weight, Scalars scalars,
                  int64_t update, c10::IntArrayRef rounding) {
        const auto rounded = rounding_of(rounding);
        Launch::adamw(
            range_of(gradient, master, exp_avg, exp_avg_sq, weight, update, rounded),
            scalars_of(scalars), update, master.device());
      });
  library.impl("lamb_moments", [](const Tensor& gradient, const Tensor& master,
                                  const Tensor& exp_avg, const Tensor& exp_avg_sq,
                                  Scalars scalars, double decay, int64_t update,
                                  c10::IntArrayRef rounding, const Tensor& sums) {
    const auto rounded = rounding_of(rounding);
    Launch::lamb_moments(
        range_of(gradient, master, exp_avg, exp_avg_sq, master, update, rounded),
        scalars_of(scalars), static_cast<float>(decay), update,
        static_cast<double*>(sums.data_ptr()), master.device());
  });
  library.impl("lamb_apply", [](const Tensor& master, const Tensor& exp_avg,
                                const Tensor& exp_avg_sq, const Tensor& rate,
                                const Tensor& weight, Scalars scalars, Scalars of_rate,
                                int64_t update, c10::IntArrayRef rounding) {
    const auto rounded = rounding_of(rounding);
    Launch::lamb_apply(
        range_of(master, master, exp_avg, exp_avg_sq, weight, update, rounded),
        scalars_of(scalars), rate_of(of_rate),
        static_cast<const double*>(rate.data_ptr()), update, master.device());
  });
  library.impl(
      "add_squares", [](at::TensorList x, c10::IntArrayRef places, const Tensor& into) {
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
                            from_scalar_type(x[0].scalar_type()), into.device());
      });
}

}  // namespace longhaul::optim
