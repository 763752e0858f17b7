#include "longhaul/checkpoint/read/read_ahead.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

/// A file that is read at more bytes per second than this must be in the page cache. A
/// hint to read it ahead would only cost a walk over its pages.
constexpr double kCachedRate = 3e9;

}  // namespace

ReadAhead::ReadAhead(const StoredTensors& stored, std::vector<Chunk> chunks, size_t slots)
    : stored_(stored),
      chunks_(std::move(chunks)),
      memory_of_(chunks_.size()),
      slots_(std::min(slots, chunks_.size())) {
  for (const Chunk& chunk : chunks_) {
    slot_bytes_ = std::max<size_t>(slot_bytes_, chunk.bytes);
  }
  memory_ = std::make_unique_for_overwrite<std::byte[]>(slots_ * slot_bytes_);
  for (size_t i = slots_; i-- > 0;) free_.push_back(memory_.get() + i * slot_bytes_);
  thread_ = std::thread([this] { run(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::run() {
  bool from_device = true;
  for (size_t place = 0; place < chunks_.size(); ++place) {
    const Chunk& chunk = chunks_[place];
    std::byte* slot = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !free_.empty(); });
      if (stop_) return;
      slot = free_.back();
      free_.pop_back();
    }
    memory_of_[place] = {slot, chunk.bytes};
    std::exception_ptr problem;
    try {
      if (from_device && place + 1 < chunks_.size()) {
        const Chunk& next = chunks_[place + 1];
        stored_.will_read(next.file, next.begin, next.bytes);
      }
      const auto start = Clock::now();
      stored_.read_blocks(chunk.file, chunk.begin, memory_of_[place]);
      const std::chrono::duration<double> spent = Clock::now() - start;
      from_device = static_cast<double>(chunk.bytes) < kCachedRate * spent.count();
    } catch (...) {
      problem = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      problem_ = problem;
      if (!problem) ++read_;
    }
    changed_.notify_all();
    if (problem) return;
  }
}

std::span<const std::byte> ReadAhead::wait(size_t place) {
  std::unique_lock lock(mutex_);
  LH_ASSERT(place < released_ + slots_, "chunk {} of {} slots from {}", place, slots_,
            released_);
  changed_.wait(lock, [&] { return place < read_ || problem_; });
  if (place >= read_) std::rethrow_exception(problem_);
  return memory_of_[place];
}

void ReadAhead::release_before(size_t place) {
  const std::lock_guard lock(mutex_);
  for (; released_ < place; ++released_) free_.push_back(memory_of_[released_].data());
  changed_.notify_all();
}

}  // namespace longhaul::checkpoint
