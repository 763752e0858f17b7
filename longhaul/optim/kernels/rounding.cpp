#include "longhaul/optim/kernels/rounding.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/optim/kernels/element.h"

namespace longhaul::optim {

ElementPlace element_place(const format::TensorSlice& slice, int64_t begin) {
  ElementPlace place{begin, 1, 1, 0};
  bool cut = false;
  for (size_t d = slice.extent.size(); d-- > 0;) {
    const bool whole = slice.extent[d] == slice.global_shape[d];
    LH_ASSERT(whole || !cut, "{} is cut in more than one dim",
              format::describe_slice(slice));
    if (!cut) {
      place.first = slice.offset[d] * place.row;
      place.stride = slice.global_shape[d] * place.row;
      place.row *= slice.extent[d];
    }
    cut = cut || !whole;
  }
  return place;
}

uint64_t rounding_key(uint64_t seed, std::string_view tensor) {
  return random_key(seed, fmt::format("rounding {}", tensor));
}

RoundingKeys rounding_keys(uint64_t key, int64_t update, int64_t high) {
  return drawn_keys(key, update, high);
}

}  // namespace longhaul::optim
