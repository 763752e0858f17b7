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

std::string OperationId::text() const {
  return fmt::format("{}, rank {} of {},", to_string(name()), place.rank, place.size);
}

Operation::Operation(OperationId id, Program program, std::unique_ptr<Batch> batch,
                     int tag, size_t max_message, Tally tally)
    : id_(std::move(id)),
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
      program_ = nullptr;  // gives the scratch back before the Work dies
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

void Engine::begin(Operation& operation) {
  check_thread();
  ledger_.count_under_way(1);
  if (ledger_.polls()) return;
  if (RankRecord* record = ledger_.record()) operation.enter(*record);
}

void Engine::advance(Operation& operation, bool& moved) {
  try {
    moved |= operation.advance();
  } catch (const Error& error) {
    const std::string message = fmt::format("{}{} failed: {}", ledger_.where(),
                                            operation.id().text(), error.message());
    if (error.kind() == ErrorKind::Temporary) throw TemporaryError(error.area(), message);
    throw Error(error.kind(), error.area(), message);
  }
  if (!operation.done()) return;
  ledger_.count_under_way(-1);
  if (operation.ticket() == 0) return;
  if (RankRecord* record = ledger_.record()) record->ended(operation.ticket());
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

void Engine::wait(const Operation& operation, const CommOptions& options) {
  const Clock::time_point start = Clock::now();
  RankRecord* record = operation.ticket() == 0 ? nullptr : ledger_.record();
  bool noted = false;
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
    if (record != nullptr && !noted) {
      record->waits(operation.ticket(), operation.id().name());
      noted = true;
    }
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (const double limit = options.limit_seconds(); waited > limit) {
      fail_deadline(ledger_, operation.id().text(), limit, waited);
    }
    if (idle_polls <= kPollsBeforeSleep) {
      sched_yield();
      continue;
    }
    if (options.job_ends) {
      const std::string why = options.job_ends();
      if (!why.empty()) fail_job_ends(ledger_, operation.id().text(), why);
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, kLongestSleep);
  }
  if (noted) record->waited();
  ledger_.waited_for(operation.id().name(), start);
}

void fail_deadline(const Ledger& ledger, const std::string& operation,
                   double deadline_seconds, double waited) {
  throw TemporaryError(
      "comm", fmt::format("{}{} did not end within {:.1f} s (waited {:.1f} s); another "
                          "rank is dead, stuck or out of step: look for the first "
                          "failure in the other ranks' logs",
                          ledger.where(), operation, deadline_seconds, waited));
}

void fail_job_ends(const Ledger& ledger, const std::string& operation,
                   const std::string& why) {
  throw TemporaryError(
      "comm", fmt::format("{}{} was under way: {}", ledger.where(), operation, why));
}

}  // namespace longhaul::comm
