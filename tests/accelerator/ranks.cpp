#include "tests/accelerator/ranks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/accelerator/loaded.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::softdev_test {

std::shared_ptr<comm::DeviceApi> collectives() {
  device();
  auto* make = reinterpret_cast<comm::DeviceApi* (*)()>(
      device::plugin_function("longhaul_device_collectives"));
  return {make(), [](comm::DeviceApi*) {}};
}

void run_ranks(int ranks, const RankBody& body) {
  comm::DeviceOptions options;
  options.compute_stream = []() -> void* {
    const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
    return guard.getStreamNativeHandle(guard.getStream(guard.getDevice()));
  };
  comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    comm::DeviceCommunicator group(collectives(), world, world->rank(), options);
    body(group);
  });
}

}  // namespace longhaul::softdev_test
