#include "longhaul/comm/engine.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// How long to poll at full speed after the last sign of life, then how long to give the
/// core away between polls (there may be more ranks than cores), before sleeping.
constexpr int kPollsBeforeYield = 64;
constexpr int kPollsBeforeSleep = 2000;
constexpr auto kShortestSleep = std::chrono::microseconds(20);
constexpr auto kLongestSleep = std::chrono::microseconds(500);

}  // namespace

Operation::Operation(std::unique_ptr<Program> program, std::unique_ptr<Batch> batch,
                     int tag, size_t max_message, std::string description)
    : program_(std::move(program)),
      batch_(std::move(batch)),
      round_(*batch_, tag, max_message),
      description_(std::move(description)) {}

bool Operation::advance() {
  bool moved = false;
  while (!done_) {
    if (under_way_ && !batch_->test()) return moved;
    moved = true;
    under_way_ = program_->next(round_);
    if (!under_way_) {
      done_ = true;
      program_.reset();  // gives the scratch back before the Work dies
    }
  }
  return moved;
}

void Engine::check_thread() {
  if (owner_ == std::thread::id()) owner_ = std::this_thread::get_id();
  LH_CHECK(
      owner_ == std::this_thread::get_id(), "comm",
      "communicators are used by two threads; the one that used them first owns them");
}

void Engine::add(const std::shared_ptr<OperationQueue>& queue) {
  queues_.push_back(queue);
}

bool Engine::progress() {
  check_thread();
  bool moved = false;
  for (const auto& weak : queues_) {
    const auto queue = weak.lock();
    if (!queue) continue;
    while (!queue->collectives.empty()) {
      moved |= queue->collectives.front()->advance();
      if (!queue->collectives.front()->done()) break;
      queue->collectives.pop_front();
    }
    for (const auto& transfer : queue->transfers) moved |= transfer->advance();
    std::erase_if(queue->transfers, [](const auto& t) { return t->done(); });
  }
  return moved;
}

void Engine::wait(const Operation& operation, double deadline_seconds) {
  const Clock::time_point start = Clock::now();
  int idle_polls = 0;
  auto sleep = kShortestSleep;
  while (true) {
    const bool moved = progress();
    if (operation.done()) return;
    if (moved) {
      idle_polls = 0;
      sleep = kShortestSleep;
      continue;
    }
    if (++idle_polls <= kPollsBeforeYield) continue;
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > deadline_seconds) {
      throw TemporaryError(
          "comm", fmt::format("{} did not end within {:.1f} s (waited {:.1f} s); another "
                              "rank is dead, stuck or out of step: look for the first "
                              "failure in the other ranks' logs",
                              operation.description(), deadline_seconds, waited));
    }
    if (idle_polls <= kPollsBeforeSleep) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(sleep);
      sleep = std::min(sleep * 2, kLongestSleep);
    }
  }
}

}  // namespace longhaul::comm
