#pragma once

#include <functional>
#include <string>

#include "longhaul/comm/nccl_communicator.h"

namespace longhaul::softdev_test {

/// The collectives that the plug-in exports.
std::shared_ptr<comm::NcclApi> collectives();

/// Runs `body` on threads as ranks, rank r on device r, over the plug-in's collectives.
using RankBody = std::function<void(comm::NcclCommunicator&)>;
void run_ranks(int ranks, const RankBody& body);

}  // namespace longhaul::softdev_test
