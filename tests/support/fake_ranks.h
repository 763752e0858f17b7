#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// Returns the communicators of `ranks` ranks of one world inside this process. Each is
/// used by a thread of its own.
std::vector<std::shared_ptr<Communicator>> fake_world(int ranks,
                                                      const CommOptions& options = {});

/// Runs `body` once for each rank, each in a thread of its own, and waits for all. If one
/// rank throws, the operations of the others fail as well, and the first error is
/// rethrown.
void run_fake_ranks(int ranks,
                    const std::function<void(std::shared_ptr<Communicator>)>& body,
                    const CommOptions& options = {});

}  // namespace longhaul::comm
