#include "longhaul/base/error.h"
#include "longhaul/comm/nccl.h"

namespace longhaul::comm {

bool nccl_is_built() { return false; }

std::string describe_nccl(const Communicator& world) {
  return world.size() == 1 ? "one rank" : "nccl, which this build has not";
}

std::unique_ptr<Communicator> nccl_group(Communicator& bootstrap, int device,
                                         const NcclOptions& /*options*/) {
  throw ConfigError("comm", fmt::format("this build has no NCCL, which {} ranks on CUDA "
                                        "devices need (device {}); run one rank or use "
                                        "run.device = \"cpu\"",
                                        bootstrap.size(), device));
}

}  // namespace longhaul::comm
