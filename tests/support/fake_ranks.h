#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// `ranks` communicators of one world inside this process, for tests: give each to a
/// thread of its own.
std::vector<std::shared_ptr<Communicator>> fake_world(int ranks,
                                                      const CommOptions& options = {});

/// Runs `body` once per rank, each in a thread of its own, and waits for all. If one
/// throws, the others' operations fail as well, and the first to throw is rethrown.
void run_fake_ranks(int ranks,
                    const std::function<void(std::shared_ptr<Communicator>)>& body,
                    const CommOptions& options = {});

}  // namespace longhaul::comm
