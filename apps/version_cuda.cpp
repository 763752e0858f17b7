#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "apps/version.h"

namespace longhaul::apps {

std::string cuda_version() {
  return fmt::format("{}.{} (runtime)", CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10);
}

}  // namespace longhaul::apps
