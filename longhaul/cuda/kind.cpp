#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "longhaul/cuda/kernels/gpu.h"
#include "longhaul/cuda/nccl.h"
#include "longhaul/device/cuda_library.h"

namespace longhaul::cuda {
namespace {

class Gpus : public device::Kind {
 public:
  std::string identity(at::DeviceIndex index) const override {
    // The driver's function, in the form since CUDA 11.4, gives a MIG slice's own UUID.
    // The runtime counts devices as the driver does.
    using GetUuid = int(unsigned char* uuid, int device);
    constexpr unsigned kSince = 11040;
    void* found = nullptr;
    auto status = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &found, kSince,
                                         cudaEnableDefault, &status) != cudaSuccess ||
        status != cudaDriverEntryPointSuccess) {
      return {};
    }
    std::array<unsigned char, 16> uuid{};
    if (reinterpret_cast<GetUuid*>(found)(uuid.data(), index) != 0) return {};
    return fmt::format("UUID {:02x}", fmt::join(uuid, ""));
  }

  std::string pci_address(at::DeviceIndex index) const override {
    std::array<char, 32> text{};
    const auto length = static_cast<int>(text.size());
    if (cudaDeviceGetPCIBusId(text.data(), length, index) != cudaSuccess) return {};
    return text.data();
  }

  std::string name(at::DeviceIndex index) const override {
    const kernels::cuda::Gpu gpu = facts(index);
    return gpu.major == 0 ? gpu.name
                          : fmt::format("{} sm_{}{}", gpu.name, gpu.major, gpu.minor);
  }

  void check(at::DeviceIndex index) const override {
    kernels::cuda::check_gpu(facts(index), kernels::cuda::built_images());
  }

  std::shared_ptr<comm::DeviceApi> collectives() const override { return nccl(); }

 private:
  static kernels::cuda::Gpu facts(at::DeviceIndex index) {
    kernels::cuda::Gpu gpu{at::Device(at::kCUDA, index).str()};
    cudaDriverGetVersion(&gpu.driver_version);
    cudaRuntimeGetVersion(&gpu.runtime_version);
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      gpu.name = properties.name;
      gpu.major = properties.major;
      gpu.minor = properties.minor;
    }
    return gpu;
  }
};

}  // namespace
}  // namespace longhaul::cuda

extern "C" __attribute__((visibility("default"))) const longhaul::device::Kind*
longhaul_cuda_kind() {
  static const longhaul::cuda::Gpus gpus;
  return &gpus;
}
