#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/format/finite.h"

namespace longhaul::checkpoint {

// NaN and infinity in weights make every result NaN, which each command would describe in
// another way. So all code that reads weights refuses such values with the same error, of
// the area kValuesArea.

/// Throws InputError that names the tensor and its first element that is NaN or infinite,
/// where there is one. `bytes` hold elements of `tensor` in `dtype`, row-major in its
/// extent from element number `begin` on, as `source` gave them. The error tells apart a
/// stored number that `dtype` cannot hold.
void check_finite(const WeightsSource& source, const format::TensorSlice& tensor,
                  int64_t begin, format::DType dtype, std::span<const std::byte> bytes);

/// Reads the tensors of the files behind parameter `name` in `dtype`, and throws
/// check_finite's error for the first element that is NaN or infinite.
void scan_finite(const WeightsSource& source, const std::string& name,
                 format::DType dtype);

/// Throws check_finite's error for an element whose description and value the caller
/// gives.
[[noreturn]] void refuse_value(const std::string& where, const std::string& element,
                               const std::string& value);

}  // namespace longhaul::checkpoint
