#include "longhaul/cuda/kernels/gpu.h"

#include <algorithm>
#include <charconv>

#include "longhaul/base/error.h"

namespace longhaul::kernels::cuda {
namespace {

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

std::string_view built_images() { return LONGHAUL_CUDA_IMAGES; }

bool image_serves(std::string_view image, int major, int minor) {
  if (!image.starts_with("sm_")) return false;
  int number = 0;
  const char* end = image.data() + image.size();
  const char* rest = std::from_chars(image.data() + 3, end, number).ptr;
  const std::string_view kind(rest, static_cast<size_t>(end - rest));
  if (number / 10 != major) return false;
  // Code of kind "a" runs only on the capability that its name gives. Code of kind "f",
  // or without a kind, also runs on later capabilities with the same first number.
  return kind == "a" ? number % 10 == minor
                     : (kind.empty() || kind == "f") && number % 10 <= minor;
}

void check_gpu(const Gpu& gpu, std::string_view images) {
  if (gpu.driver_version / 1000 < gpu.runtime_version / 1000) {
    fail_config("cuda",
                "the driver of {} supports CUDA {}, but this program needs {}; install a "
                "newer driver ('nvidia-smi' shows which CUDA a driver supports)",
                gpu.name, version(gpu.driver_version), version(gpu.runtime_version));
  }
  if (gpu.major == 0) {
    fail_config("cuda",
                "{} does not report its compute capability; "
                "'nvidia-smi' shows whether the GPU answers",
                gpu.name);
  }
  for (size_t begin = 0; begin < images.size();) {
    const size_t end = std::min(images.find(' ', begin), images.size());
    if (image_serves(images.substr(begin, end - begin), gpu.major, gpu.minor)) return;
    begin = end + 1;
  }
  fail_config(
      "cuda",
      "{} is an sm_{}{}, but this program has kernels for {}; build the program with "
      "-DLONGHAUL_CUDA_ARCH=sm_{}{}, or run it on a GPU that it has kernels for",
      gpu.name, gpu.major, gpu.minor, images, gpu.major, gpu.minor);
}

}  // namespace longhaul::kernels::cuda
