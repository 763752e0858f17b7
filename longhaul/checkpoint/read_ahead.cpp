#include "longhaul/checkpoint/read_ahead.h"

#include <algorithm>
#include <utility>

namespace longhaul::checkpoint {

ReadAhead::ReadAhead(const StoredTensors& stored, std::vector<Chunk> chunks,
                     uint64_t bytes)
    : stored_(stored), chunks_(std::move(chunks)), begin_(chunks_.size()) {
  uint64_t largest = 0;
  uint64_t all = 0;
  for (const Chunk& chunk : chunks_) {
    largest = std::max(largest, chunk.bytes);
    all += chunk.bytes;
  }
  size_ = std::min(all, std::max(bytes, 3 * largest));
  memory_ = std::make_unique_for_overwrite<std::byte[]>(size_);
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

std::span<std::byte> ReadAhead::memory_of(size_t place) {
  return {memory_.get() + begin_[place], chunks_[place].bytes};
}

/// Whether a chunk fits behind the one before it, or else at the start of the memory.
bool ReadAhead::find_room(size_t place) {
  const uint64_t bytes = chunks_[place].bytes;
  const uint64_t begin = next_ + bytes <= size_ ? next_ : 0;
  for (size_t i = released_; i < place; ++i) {
    if (begin < begin_[i] + chunks_[i].bytes && begin_[i] < begin + bytes) return false;
  }
  begin_[place] = begin;
  next_ = begin + bytes;
  return true;
}

void ReadAhead::run() {
  for (size_t place = 0; place < chunks_.size(); ++place) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || find_room(place); });
      if (stop_) return;
    }
    std::exception_ptr problem;
    try {
      const Chunk& chunk = chunks_[place];
      if (place + 1 < chunks_.size()) {
        const Chunk& next = chunks_[place + 1];
        stored_.will_read(next.file, next.begin, next.bytes);
      }
      stored_.read_blocks(chunk.file, chunk.begin, memory_of(place));
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
  changed_.wait(lock, [&] { return place < read_ || problem_; });
  if (place >= read_) std::rethrow_exception(problem_);
  return memory_of(place);
}

void ReadAhead::release_before(size_t place) {
  {
    const std::lock_guard lock(mutex_);
    released_ = std::max(released_, place);
  }
  changed_.notify_all();
}

}  // namespace longhaul::checkpoint
