#pragma once

#include <string>
#include <string_view>

namespace longhaul::kernels::cuda {

/// The properties of a GPU and its driver that decide whether the kernels of this program
/// run.
struct Gpu {
  std::string name;  ///< for example "NVIDIA H100 80GB HBM3"
  int major = 0;     ///< first number of the compute capability, 9 of 9.0; 0: not known
  int minor = 0;     ///< second number of the compute capability, 0 of 9.0
  int driver_version = 0;  ///< the CUDA that the driver supports: 13000 is 13.0
  int runtime_version = 0;
};

/// Returns the architectures that the kernels were compiled for, such as "sm_80 sm_90a
/// sm_100".
std::string_view built_images();

/// Returns whether code for `image` runs on compute capability major.minor: code for
/// sm_80 runs on 8.0 and later capabilities of 8, code for sm_90a on 9.0 alone.
bool image_serves(std::string_view image, int major, int minor);

/// Throws ConfigError if the driver is older than the CUDA of the program, or if code for
/// none of `images`, names separated by spaces, runs on this GPU.
void check_gpu(const Gpu& gpu, std::string_view images);

}  // namespace longhaul::kernels::cuda
