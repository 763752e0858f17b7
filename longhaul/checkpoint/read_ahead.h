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

#include "longhaul/checkpoint/node_plan.h"
#include "longhaul/checkpoint/stored_tensors.h"

namespace longhaul::checkpoint {

/// Reads chunks in a given order on a thread of its own, some bytes ahead of who takes
/// them. One other thread uses it.
class ReadAhead {
 public:
  /// Holds so many bytes at most, and no less than three of the largest chunk. `stored`
  /// stays alive and unchanged.
  ReadAhead(const StoredTensors& stored, std::vector<Chunk> chunks, uint64_t bytes);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The bytes of a chunk, by its place in the order: waits until it is read. Throws what
  /// reading it threw. Who holds more than half of the bytes without a release, and wants
  /// another, may wait for ever.
  std::span<const std::byte> wait(size_t place);
  /// Gives the memory of all chunks before this place back.
  void release_before(size_t place);

 private:
  void run();
  bool find_room(size_t place);
  std::span<std::byte> memory_of(size_t place);

  const StoredTensors& stored_;
  std::vector<Chunk> chunks_;
  std::vector<uint64_t> begin_;  ///< by chunk: where it lies in the memory
  uint64_t next_ = 0;            ///< where the next one would lie
  uint64_t size_ = 0;
  std::unique_ptr<std::byte[]> memory_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t read_ = 0;      ///< chunks that are read
  size_t released_ = 0;  ///< chunks whose memory is free again
  bool stop_ = false;
  std::exception_ptr problem_;  ///< of chunk number read_
  std::thread thread_;
};

}  // namespace longhaul::checkpoint
