#include "tests/support/fake_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include "longhaul/comm/staged.h"
#include "tests/support/local_transport.h"

namespace longhaul::comm {

std::vector<std::shared_ptr<Communicator>> fake_world(int ranks,
                                                      const CommOptions& options) {
  std::vector<std::shared_ptr<Communicator>> world;
  for (auto& transport : local_transports(ranks)) {
    world.push_back(
        std::make_shared<StagedCommunicator>(std::move(transport), "world", options));
  }
  return world;
}

void run_fake_ranks(int ranks,
                    const std::function<void(std::shared_ptr<Communicator>)>& body,
                    const CommOptions& options) {
  const auto world = fake_world(ranks, options);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (const auto& communicator : world) {
    threads.emplace_back([&, communicator] {
      try {
        body(communicator);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first_error) first_error = std::current_exception();
        }
        communicator->abort(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace longhaul::comm
