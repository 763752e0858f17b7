#pragma once

#include <c10/core/Device.h>

#include "longhaul/format/dtype.h"

namespace longhaul::train {

/// The dense matrix-product rate that a device reaches here and now, in FLOP/s, measured
/// in a few tenths of a second: on a CPU the fastest of some products, elsewhere the
/// median of products that fill the device, on a GPU 8192 cubed where there is room.
/// Other work on the machine makes it lower (see PeakRate).
double measure_matmul_rate(DType dtype, c10::Device device);

}  // namespace longhaul::train
