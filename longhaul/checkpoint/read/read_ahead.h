#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "longhaul/checkpoint/read/node_plan.h"
#include "longhaul/checkpoint/read/stored_tensors.h"

namespace longhaul::checkpoint {

/// Reads chunks in a given order on a thread of its own, a few ahead of the one thread
/// that takes them.
class ReadAhead {
 public:
  /// Holds at most `slots` chunks. `stored` must stay alive and unchanged.
  ReadAhead(const StoredTensors& stored, std::vector<Chunk> chunks, size_t slots);
  ~ReadAhead();

  /// Returns the bytes of the chunk with this index in the order; waits until it is read.
  /// Throws what reading it threw. Fewer than `slots` other chunks may be held without a
  /// release.
  std::span<const std::byte> wait(size_t place);
  /// Frees the memory of all chunks before this index.
  void release_before(size_t place);

 private:
  void run();

  const StoredTensors& stored_;
  std::vector<Chunk> chunks_;
  std::vector<std::span<std::byte>> memory_of_;  ///< by chunk
  size_t slots_;
  size_t slot_bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;

  std::mutex mutex_;
  std::condition_variable changed_;
  /// The memory that was freed last is used first: it is still in the processor's caches.
  std::vector<std::byte*> free_;
  size_t read_ = 0;      ///< number of chunks that were read
  size_t released_ = 0;  ///< number of chunks whose memory was freed
  bool stop_ = false;
  std::exception_ptr problem_;  ///< the error of chunk number read_
  std::thread thread_;
};

}  // namespace longhaul::checkpoint
