#include "longhaul/device/kinds.h"

#include "longhaul/base/error.h"
#include "longhaul/device/cuda_library.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/device/plugin.h"

namespace longhaul::device {
namespace {

class Cpu : public Kind {
 public:
  std::string name(at::DeviceIndex) const override { return "cpu"; }
};

/// The function that a plug-in may export. The instance that it returns lives as long as
/// the process, and is null if the device has no collectives.
using PluginCollectives = comm::DeviceApi*();

class Plugin : public Kind {
 public:
  std::string name(at::DeviceIndex index) const override {
    const NeuronLoaded* const neuron = loaded_neuron();
    return neuron != nullptr ? neuron->instance
                             : at::Device(at::kPrivateUse1, index).str();
  }
  void check(at::DeviceIndex index) const override { check_plugin(index); }
  std::shared_ptr<comm::DeviceApi> collectives() const override {
    void* const symbol = plugin_function(kPluginCollectives);
    if (symbol == nullptr) return nullptr;
    return {reinterpret_cast<PluginCollectives*>(symbol)(), [](comm::DeviceApi*) {}};
  }
};

}  // namespace

const Kind& kind_of(at::Device device) {
  static const Cpu cpu;
  static const Plugin plugin;
  if (device.is_cpu()) return cpu;
  if (!device.is_cuda()) return plugin;
  const CudaLibrary& library = cuda_library();
  LH_ASSERT(library.kind != nullptr, "{} without the library for it: {}", device.str(),
            library.obstacle);
  return *library.kind;
}

}  // namespace longhaul::device
