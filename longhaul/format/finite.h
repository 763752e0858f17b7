#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "longhaul/format/tensor_slice.h"

namespace longhaul::format {

/// The area of errors for files that are complete but hold impossible values. Code that
/// falls back to an older checkpoint if one is damaged does not do so for these errors.
inline constexpr const char* kValuesArea = "values";

/// Returns the index of the first element that is NaN or infinite, or nothing if there is
/// none or the dtype is no float type. `bytes` need no alignment.
std::optional<size_t> first_not_finite(std::span<const std::byte> bytes, DType dtype);

/// Returns "model.norm.weight[3]" or "model.embed_tokens.weight[12, 7]" for the element
/// that is number `index` of a whole tensor in row-major order.
std::string describe_element(const std::string& name, const std::vector<int64_t>& shape,
                             int64_t index);

/// Returns the number, in the whole tensor, of element `index` of a box. Both are
/// row-major.
int64_t whole_index(const TensorSlice& box, int64_t index);

}  // namespace longhaul::format
