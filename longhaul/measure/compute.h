#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// What a training step computes with, in bf16 unless said: products by shape, a weight
/// gradient, attention forward and backward, a product in fp32, and a copy through
/// memory. The first is the product that other figures relate to. On a device a run waits
/// for it.
std::vector<Probe> compute_probes(at::Device device);

/// The first product of compute_probes in bf16 and in fp32, which show in a tenth of a
/// second which number format suits a machine.
std::vector<Probe> product_probes(at::Device device);

}  // namespace longhaul::measure
