#pragma once

#include <cstdint>
#include <string_view>

#include "longhaul/format/tensor_slice.h"

namespace longhaul::optim {

// Stochastic rounding has no state here. The run's seed, the number of the update, the
// tensor's name, the kind of value and the element's index in the whole tensor decide
// whether an element is rounded up. So the rounding is the same in every layout and on a
// resume.

/// What is rounded. Each kind draws random numbers of its own.
enum RoundingOf : int { kRoundMaster, kRoundExpAvg, kRoundExpAvgSq };
inline constexpr int kRoundings = 3;

/// The indices of a range's elements in the whole tensor, row-major. The range begins at
/// element `begin` of this rank's slice. Element j of the slice has the index
///   j / row * stride + first + j % row.
struct ElementPlace {
  int64_t begin = 0;
  int64_t row = 1;
  int64_t stride = 0;
  int64_t first = 0;
};
[[gnu::always_inline]] constexpr int64_t number_of(const ElementPlace& place, int64_t j) {
  return j / place.row * place.stride + place.first + j % place.row;
}

/// Returns the ElementPlace of the slice's elements from `begin` on. Throws an Internal
/// error if the slice is cut in more than one dim.
ElementPlace element_place(const format::TensorSlice& slice, int64_t begin);

struct Rounding {
  uint64_t key = 0;  ///< rounding_key
  ElementPlace place;
};

uint64_t rounding_key(uint64_t seed, std::string_view tensor);

/// The random keys of one update (rounding_keys), for elements whose indices in the
/// tensor have the same upper 32 bits.
struct RoundingKeys {
  uint32_t of[kRoundings][2];
};
RoundingKeys rounding_keys(uint64_t key, int64_t update, int64_t high);

}  // namespace longhaul::optim
