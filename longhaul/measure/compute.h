#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <vector>

#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// Returns probes of a training step's operations, in bf16 where not said otherwise:
/// products by shape, a product in fp32, a weight gradient, attention in bf16 and in
/// fp32, and a copy through memory. The first probe is the product that the figures of
/// the other probes relate to. A run waits for the device.
std::vector<Probe> compute_probes(at::Device device);

/// Returns the first product of compute_probes in bf16 and in fp32. These two probes show
/// in a tenth of a second which number format suits a machine.
std::vector<Probe> product_probes(at::Device device);

/// Returns probes of the products of experts that have kGroupedRows rows each, forward
/// and backward, and before them the first probe of compute_probes, which they relate to.
/// The products are in `dtype`, bf16 or fp32, and the gradients of the weights in fp32.
std::vector<Probe> grouped_probes(at::ScalarType dtype, at::Device device);

}  // namespace longhaul::measure
