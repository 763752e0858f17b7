#pragma once

namespace longhaul::ops {

/// Forbids what LibTorch allows a GPU's matrix products by default: adding the parts of a
/// split sum in bf16 or fp16. Products then sum in fp32, as ops promises. Once, before
/// the first product; a CPU is not concerned.
void set_device_precision();

}  // namespace longhaul::ops
