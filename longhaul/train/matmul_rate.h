#pragma once

#include <c10/core/Device.h>

#include "longhaul/format/dtype.h"

namespace longhaul::train {

/// The dense matrix-product rate that a device reaches here, in FLOP/s, measured in a few
/// hundredths of a second: what mfu relates to where no hardware profile gives a peak.
double measure_matmul_rate(DType dtype, c10::Device device);

}  // namespace longhaul::train
