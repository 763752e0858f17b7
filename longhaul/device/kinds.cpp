#include "longhaul/device/kinds.h"

#include "longhaul/comm/nccl.h"
#include "longhaul/device/plugin.h"

namespace longhaul::device {
namespace {

/// What a plug-in may export; its instance lives as long as the process.
using PluginCollectives = comm::DeviceApi*();
constexpr const char* kPluginCollectives = "longhaul_device_collectives";

}  // namespace

std::shared_ptr<comm::DeviceApi> collectives(at::Device device) {
  if (device.is_cuda()) return comm::nccl();
  void* const symbol = plugin_function(kPluginCollectives);
  if (symbol == nullptr) return nullptr;
  return {reinterpret_cast<PluginCollectives*>(symbol)(), [](comm::DeviceApi*) {}};
}

}  // namespace longhaul::device
