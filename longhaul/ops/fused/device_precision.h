#pragma once

namespace longhaul::ops {

/// Forbids that matrix products of a GPU add the parts of a split sum in bf16 or fp16,
/// which LibTorch allows by default. Products then sum in fp32, as ops promises. Must be
/// called once, before the first product. A CPU is not affected.
void set_device_precision();

}  // namespace longhaul::ops
