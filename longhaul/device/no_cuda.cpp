#include "longhaul/device/kinds.h"

namespace longhaul::device {

std::string identity(at::Device /*device*/) { return {}; }

}  // namespace longhaul::device
