#pragma once

#include <c10/core/Device.h>

#include "longhaul/format/dtype.h"

namespace longhaul::train {

/// The dense matrix-product rate that a device reaches here and now, in FLOP/s, measured
/// in a few hundredths of a second. Other work on the machine makes it lower (see
/// PeakRate).
double measure_matmul_rate(DType dtype, c10::Device device);

}  // namespace longhaul::train
