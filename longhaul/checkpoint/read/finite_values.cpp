#include "longhaul/checkpoint/read/finite_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

/// Elements that are read at a time.
constexpr int64_t kScanElements = int64_t{1} << 22;

double stored_value(const WeightsSource& source, const format::TensorSlice& tensor,
                    int64_t index) {
  double value = 0.0;
  source.read_flat_range(tensor, index, index + 1, format::DType::F64,
                         std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace

void refuse_value(const std::string& where, const std::string& element,
                  const std::string& value) {
  fail_input(format::kValuesArea,
             "{}: {} is {}: with such a weight every result is NaN; copy the files "
             "again, or take an older checkpoint (name its directory; checkpoint.resume "
             "= STEP for a run that goes on)",
             where, element, value);
}

void check_finite(const WeightsSource& source, const format::TensorSlice& tensor,
                  int64_t begin, format::DType dtype, std::span<const std::byte> bytes) {
  const auto found = format::first_not_finite(bytes, dtype);
  if (!found) return;
  const int64_t index = begin + static_cast<int64_t>(*found);
  const std::string element = format::describe_element(
      tensor.name, tensor.global_shape, format::whole_index(tensor, index));
  const double value = stored_value(source, tensor, index);
  const std::string where = source.source().path.string();
  if (!std::isfinite(value)) refuse_value(where, element, fmt::format("{}", value));
  fail_input(format::kValuesArea,
             "{}: {} is {}, which {} cannot hold; choose another dtype", where, element,
             value, format::dtype_name(dtype));
}

void scan_finite(const WeightsSource& source, const std::string& name,
                 format::DType dtype) {
  const WeightsSource& files = source.files();
  const std::vector<std::string> origins = source.origins(name);
  std::vector<std::byte> buffer;
  for (const format::TensorSlice& tensor : files.tensors()) {
    if (std::ranges::find(origins, tensor.name) == origins.end()) continue;
    for (int64_t at = 0; at < tensor.num_elements(); at += kScanElements) {
      const int64_t end = std::min(tensor.num_elements(), at + kScanElements);
      buffer.resize(static_cast<size_t>(end - at) * format::dtype_size(dtype));
      files.read_flat_range(tensor, at, end, dtype, buffer);
      check_finite(files, tensor, at, dtype, buffer);
    }
  }
}

}  // namespace longhaul::checkpoint
