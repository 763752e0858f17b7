#pragma once

#include <string>
#include <string_view>

namespace longhaul::kernels::cuda {

/// What decides whether the kernels of this program run on a GPU.
struct Gpu {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  int major = 0;     ///< of its compute capability: 9 of 9.0; 0: it was not to be had
  int minor = 0;     ///< 0 of 9.0
  int driver_version = 0;  ///< the CUDA that its driver knows: 13000 is 13.0
  int runtime_version = 0;
};

/// The architectures that the kernels were compiled for: "sm_80 sm_90a sm_100".
std::string_view built_images();

/// Whether code for `image` runs on compute capability major.minor: code for sm_80 serves
/// 8.0 and later of 8, code for sm_90a serves 9.0 alone.
bool image_serves(std::string_view image, int major, int minor);

/// ConfigError where the driver is older than the program's CUDA, or none of `images`,
/// names between spaces, serves this GPU.
void check_gpu(const Gpu& gpu, std::string_view images);

}  // namespace longhaul::kernels::cuda
