#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/format/finite.h"

namespace longhaul::checkpoint {

// NaN and infinity in weights make every result NaN, and each verb would tell of
// something else. All paths that read weights refuse them with one error, of the area
// kValuesArea.

/// InputError that names the tensor and its first element that is NaN or infinite, where
/// `bytes` hold one: elements of `tensor`, row-major in its extent from number `begin`
/// on, as `source` gave them in `dtype`. A number that `dtype` cannot hold is told as
/// such.
void check_finite(const WeightsSource& source, const TensorSlice& tensor, int64_t begin,
                  DType dtype, std::span<const std::byte> bytes);

/// InputError for the first such element that reading the tensors of the files behind
/// parameter `name` in `dtype` meets; nothing where there is none.
void scan_finite(const WeightsSource& source, const std::string& name, DType dtype);

/// The same error, where the element and its value are known.
[[noreturn]] void refuse_value(const std::string& where, const std::string& element,
                               const std::string& value);

}  // namespace longhaul::checkpoint
