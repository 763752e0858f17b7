#include <cuda_runtime_api.h>

#include <array>

#include "longhaul/device/kinds.h"

namespace longhaul::device {

std::string identity(at::Device device) {
  if (!device.is_cuda()) return {};
  std::array<char, 32> text{};
  const auto length = static_cast<int>(text.size());
  if (cudaDeviceGetPCIBusId(text.data(), length, device.index()) != cudaSuccess)
    return {};
  return text.data();
}

}  // namespace longhaul::device
