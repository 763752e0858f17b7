#pragma once

#include <functional>
#include <string>

#include "longhaul/comm/device_communicator.h"

namespace longhaul::softdev_test {

/// Returns the collectives that the plug-in exports.
std::shared_ptr<comm::DeviceApi> collectives();

/// Runs `body` on ranks that are threads, rank r on device r, over the plug-in's
/// collectives.
using RankBody = std::function<void(comm::DeviceCommunicator&)>;
void run_ranks(int ranks, const RankBody& body);

}  // namespace longhaul::softdev_test
