#include "tests/accelerator/narrow.h"

#include <array>
#include <string_view>

#include "longhaul/tensor/device_limits.h"
#include "tests/accelerator/counters.h"

namespace longhaul::softdev {
namespace {

/// Operations of the program's composite forms that no narrow device needs to have.
constexpr std::array<std::string_view, 5> kUnknown = {
    "aten::logaddexp", "aten::logsumexp", "aten::argmax", "aten::sort", "aten::argsort"};

bool is_wide(c10::ScalarType dtype) { return c10::elementSize(dtype) > 4; }

}  // namespace

bool is_narrow() {
  static const bool narrow = setting("SOFTDEV_NARROW", 0) != 0;
  return narrow;
}

void check_width(c10::ScalarType dtype, const std::string& where) {
  TORCH_CHECK(!is_narrow() || !is_wide(dtype), "softdev: NARROW: ", where,
              " makes a tensor of ", dtype, ", which the device cannot hold");
}

void check_written(const at::Tensor& t, const std::string& operation) {
  if (!is_narrow() || t.numel() == 0) return;
  // LibTorch makes results of permuted inputs permuted: such a tensor is whole.
  const bool fresh =
      t.is_non_overlapping_and_dense() && t.nbytes() == t.storage().nbytes();
  TORCH_CHECK(t.storage_offset() == 0 && (fresh || t.is_contiguous()),
              "softdev: NARROW: ", operation, " writes to a part of a tensor: shape ",
              t.sizes(), ", strides ", t.strides(), ", offset ", t.storage_offset());
}

void check_known(const std::string& operation) {
  if (!is_narrow()) return;
  for (const std::string_view unknown : kUnknown) {
    TORCH_CHECK(operation != unknown, "softdev: NARROW: the device has no ", operation);
  }
}

#pragma GCC visibility push(default)
extern "C" void longhaul_device_limits(tensor::DeviceLimits* limits) {
  if (!is_narrow()) return;
  limits->wide_types = limits->writes_views = limits->any_shapes = false;
  limits->most_bytes = setting("SOFTDEV_MOST_BYTES", limits->most_bytes);
}
#pragma GCC visibility pop

}  // namespace longhaul::softdev
