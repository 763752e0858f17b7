#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// Returns probes of a training step's operations, in bf16 where not said otherwise:
/// products by shape, a product in fp32, a weight gradient, attention forward and
/// backward, and a copy through memory. The first probe is the product that the figures
/// of the other probes relate to. A run waits for the device.
std::vector<Probe> compute_probes(at::Device device);

/// Returns the first product of compute_probes in bf16 and in fp32. These two probes show
/// in a tenth of a second which number format suits a machine.
std::vector<Probe> product_probes(at::Device device);

}  // namespace longhaul::measure
