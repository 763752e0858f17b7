#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/accelerator/streams.h"

namespace longhaul::softdev {

/// One use of some bytes by an operation.
struct Access {
  size_t stream = 0;
  uint64_t number = 0;  ///< number of the operation in its stream; 0: never used
  uint32_t life = 0;    ///< how often the block was taken, since blocks are used again
  std::shared_ptr<const std::string> place;
};

/// Remembers, for every byte of a block, the last write and the reads since then.
class UseLog {
 public:
  struct Conflict {
    Access earlier;
    bool earlier_wrote = false;
  };
  /// Notes a use of [begin, end) by an operation that comes after `seen`. Returns an
  /// earlier use that the operation is not ordered with.
  std::optional<Conflict> note(size_t begin, size_t end, bool writes, const Access& use,
                               const Clock& seen);
  /// Removes the uses of the event's stream up to the event, which are known to be over.
  void forget(const Event& event);
  /// Returns whether `stream` comes after all uses by other streams.
  bool is_behind_others(const Stream& stream) const;
  /// Returns the streams that have used the block.
  std::vector<size_t> streams() const;

 private:
  struct Segment {
    size_t end = 0;
    Access write;
    std::vector<Access> reads;  ///< the last read of each stream
  };
  void cut(size_t at);

  std::map<size_t, Segment> segments_{{0, {SIZE_MAX, {}, {}}}};
};

/// A piece of memory that was given out. When freed it stays in the cache.
struct Block {
  std::byte* data = nullptr;  ///< address of tensors; no access to a device's memory
  size_t size = 0;
  int device = -1;           ///< -1: pinned host memory
  Stream* stream = nullptr;  ///< the stream that it was taken for
  uint32_t life = 0;
  bool used = false;
  UseLog uses;
  std::vector<Stream*> recorded;  ///< other streams that were said to use it
  std::vector<Event> held_by;     ///< events before which a freed block is not used again
  size_t asked = 0;               ///< bytes that were asked for, at most `size`
};

/// Takes memory for the calling thread's current stream of the device. The memory holds
/// NaN. Throws when the device is full.
Block* take_device(size_t bytes, int device);
/// Returns the bytes of the device that are free, and all of its bytes.
std::pair<size_t, size_t> device_memory_free_and_total(int device);
Block* take_pinned(size_t bytes);
void give_back(Block* block) noexcept;

/// Returns the block that the address lies in, whether in use or cached, or null. The
/// caller must hold state_mutex().
Block* block_of(const void* address);
/// Makes the process report where the host touches the device's memory, before the signal
/// ends the process.
void watch_strays();
bool is_device_memory(const void* address);
/// Returns the address at which kernels reach memory: in the device's other mapping, or
/// the address itself.
std::byte* kernel_address(const void* address);

/// Is called for pinned blocks that are given back, under state_mutex().
void set_before_pinned_free(void (*call)(const Block&));

}  // namespace longhaul::softdev
