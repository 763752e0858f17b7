#include "longhaul/cuda/kernels/cuda_failure.h"

#include "longhaul/base/error.h"

namespace longhaul::kernels::cuda {

void launch_failed(const char* kernel, const char* message) {
  throw Error(ErrorKind::Internal, "cuda",
              fmt::format("kernel {} could not be launched: {}; check that the GPU's "
                          "architecture is the one that this program was built for",
                          kernel, message));
}

}  // namespace longhaul::kernels::cuda
