#include "longhaul/base/error.h"
#include "longhaul/comm/nccl.h"

namespace longhaul::comm {

bool nccl_is_built() { return false; }

std::shared_ptr<DeviceApi> nccl() {
  throw ConfigError("comm",
                    "this build has no NCCL, which several ranks on CUDA devices need; "
                    "run one rank or use run.device = \"cpu\"");
}

}  // namespace longhaul::comm
