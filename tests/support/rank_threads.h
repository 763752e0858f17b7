#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "longhaul/comm/staged.h"
#include "tests/support/local_transport.h"

namespace longhaul::testing {

/// Runs `body` once for each rank, each on a thread with its own world. Rethrows the
/// error of the lowest rank after all ranks have ended.
inline void run_ranks(int ranks, const std::function<void(comm::Communicator&)>& body) {
  auto transports = comm::local_transports(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < errors.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::StagedCommunicator world(std::move(transports[r]), "world",
                                       comm::CommOptions{});
        body(world);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace longhaul::testing
