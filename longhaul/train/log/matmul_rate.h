#pragma once

#include <c10/core/Device.h>

#include "longhaul/format/dtype.h"
#include "longhaul/train/log/peak_rate.h"

namespace longhaul::train {

/// How long a measurement may take. A full one takes a few tenths of a second, which most
/// steps of a small model take together. A short one takes a few products.
enum class Effort { Short, Full };

/// Measures the rate of dense matrix products that a device reaches now. On a CPU the
/// fastest of some products counts; on other devices the median of products that fill the
/// device, on a GPU 8192 cubed where there is memory. Other work on the machine lowers
/// the rate (see PeakRate).
MatmulRate measure_matmul_rate(format::DType dtype, c10::Device device, Effort effort);

}  // namespace longhaul::train
