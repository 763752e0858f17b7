#include "longhaul/ops/fused_cuda.h"

namespace longhaul::ops::fused::cuda {

std::string device_name(at::Device device) {
  return device.is_cpu() ? "cpu" : device.str();
}

void check_device(at::Device /*device*/) {}

}  // namespace longhaul::ops::fused::cuda
