#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "longhaul/checkpoint/read/node_plan.h"
#include "longhaul/checkpoint/read/stored_tensors.h"

namespace longhaul::checkpoint {

/// Reads chunks in a given order on a thread of its own, a few ahead of who takes them.
/// One other thread uses it.
class ReadAhead {
 public:
  /// Holds `slots` chunks at most. `stored` stays alive and unchanged.
  ReadAhead(const StoredTensors& stored, std::vector<Chunk> chunks, size_t slots);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The bytes of a chunk, by its place in the order: waits until it is read. Throws what
  /// reading it threw. Fewer than `slots` others may be held without a release.
  std::span<const std::byte> wait(size_t place);
  /// Gives the memory of all chunks before this place back.
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
  /// The last given back is taken first: it is still in the processor's caches.
  std::vector<std::byte*> free_;
  size_t read_ = 0;      ///< chunks that are read
  size_t released_ = 0;  ///< chunks whose memory is given back
  bool stop_ = false;
  std::exception_ptr problem_;  ///< of chunk number read_
  std::thread thread_;
};

}  // namespace longhaul::checkpoint
