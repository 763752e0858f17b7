#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "longhaul/format/tensor_slice.h"

namespace longhaul {

/// The area of errors of files that are whole and hold values which no model can have:
/// whoever takes an older checkpoint where one is damaged does not do so for these.
inline constexpr const char* kValuesArea = "values";

/// The place of the first element that is NaN or infinite; nothing where there is none,
/// and of dtypes that are no float types. `bytes` need no alignment.
std::optional<size_t> first_not_finite(std::span<const std::byte> bytes, DType dtype);

/// "model.norm.weight[3]", "model.embed_tokens.weight[12, 7]": the element that is number
/// `index` of a whole tensor in row-major order.
std::string describe_element(const std::string& name, const std::vector<int64_t>& shape,
                             int64_t index);

/// The number of element `index` of a box, both in row-major order, in its whole tensor.
int64_t whole_index(const TensorSlice& box, int64_t index);

}  // namespace longhaul
