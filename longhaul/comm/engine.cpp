#include "longhaul/comm/engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

/// A wait polls at full speed this many times after the last progress. Then it gives the
/// core away between polls, since there may be more ranks than cores.
constexpr int kPollsBeforeYield = 64;
/// After this many polls without progress a wait sleeps between polls.
constexpr int kPollsBeforeSleep = 2000;
constexpr auto kShortestSleep = std::chrono::microseconds(20);
constexpr auto kLongestSleep = std::chrono::microseconds(500);

}  // namespace

Operation::Operation(OperationEntry entry, Program program, std::unique_ptr<Batch> batch,
                     int tag, size_t max_message, Tally tally)
    : entry_(std::move(entry)),
      program_(std::move(program)),
      batch_(std::move(batch)),
      round_(*batch_, tag, max_message, tally) {
  tally.call();
}

bool Operation::advance() {
  bool moved = false;
  while (!done_) {
    if (under_way_ && !batch_->test()) return moved;
    moved = true;
    under_way_ = program_(round_, rounds_++);
    if (!under_way_) {
      done_ = true;
      program_ = nullptr;  // gives the scratch memory back before the Work is destroyed
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

void Engine::advance(Operation& operation, bool& moved) {
  try {
    moved |= operation.advance();
  } catch (const Error& error) {
    const std::string message =
        fmt::format("{}{} failed: {}", ledger_.where(), operation.entry().id().text(),
                    error.message());
    if (error.kind() == ErrorKind::Temporary) throw TemporaryError(error.area(), message);
    throw Error(error.kind(), error.area(), message);
  }
  if (operation.done()) operation.entry().ended();
}

bool Engine::progress() {
  check_thread();
  bool moved = false;
  for (const auto& weak : queues_) {
    const auto queue = weak.lock();
    if (!queue) continue;
    while (!queue->collectives.empty()) {
      advance(*queue->collectives.front(), moved);
      if (!queue->collectives.front()->done()) break;
      queue->collectives.pop_front();
    }
    for (const auto& transfer : queue->transfers) advance(*transfer, moved);
    std::erase_if(queue->transfers, [](const auto& t) { return t->done(); });
  }
  return moved;
}

void Engine::wait(Operation& operation, const CommOptions& options) {
  const auto start = Ledger::Clock::now();
  OperationEntry& entry = operation.entry();
  int idle_polls = 0;
  auto sleep = kShortestSleep;
  while (true) {
    const bool moved = progress();
    if (operation.done()) break;
    if (moved) {
      idle_polls = 0;
      sleep = kShortestSleep;
      continue;
    }
    if (++idle_polls <= kPollsBeforeYield) continue;
    entry.waits();
    check_wait(ledger_, options, start, [&] { return entry.id().text(); });
    if (idle_polls <= kPollsBeforeSleep) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, kLongestSleep);
  }
  entry.waited(start);
}

}  // namespace longhaul::comm
