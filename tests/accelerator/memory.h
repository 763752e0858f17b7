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
  uint64_t number = 0;  ///< of the operation in its stream; 0: never used
  uint32_t life = 0;    ///< of the block, which is used again when freed
  std::shared_ptr<const std::string> place;
};

/// The last write and the reads since then of every byte of a block.
class UseLog {
 public:
  struct Conflict {
    Access earlier;
    bool earlier_wrote = false;
  };
  /// Notes a use of [begin, end) by an operation that has seen `seen`, and returns an
  /// earlier one that it is not behind.
  std::optional<Conflict> note(size_t begin, size_t end, bool writes, const Access& use,
                               const Clock& seen);
  /// Takes out what the event's stream did until then: known to be over.
  void forget(const Event& event);
  /// `stream` comes after all that other streams have done with it.
  bool is_behind_others(const Stream& stream) const;
  /// The streams that have used it.
  std::vector<size_t> streams() const;

 private:
  struct Segment {
    size_t end = 0;
    Access write;
    std::vector<Access> reads;  ///< the last of each stream
  };
  void cut(size_t at);

  std::map<size_t, Segment> segments_{{0, {SIZE_MAX, {}, {}}}};
};

/// A piece of memory that was given out; lives in the cache when freed.
struct Block {
  std::byte* data = nullptr;  ///< as tensors know it: no access on a device
  size_t size = 0;
  int device = -1;           ///< -1: pinned host memory
  Stream* stream = nullptr;  ///< it was taken for
  uint32_t life = 0;
  bool used = false;
  UseLog uses;
  std::vector<Stream*> recorded;  ///< others that were said to use it
  std::vector<Event> held_by;     ///< freed, and not used again before these
};

/// On the calling thread's current stream of the device; holds NaN. Throws when the
/// device is full.
Block* take_device(size_t bytes, int device);
/// Bytes of the device that nobody has taken, and all.
std::pair<size_t, size_t> device_memory_free_and_total(int device);
Block* take_pinned(size_t bytes);
void give_back(Block* block) noexcept;

/// The block that the address lies in, given out or cached; null for none. Under
/// state_mutex().
Block* block_of(const void* address);
/// Says so where the host touches the device's memory, before that ends the process.
void watch_strays();
bool is_device_memory(const void* address);
/// Where kernels reach it: what the device's other mapping has, else the address itself.
std::byte* kernel_address(const void* address);

/// Called for pinned blocks that are given back, under state_mutex().
void set_before_pinned_free(void (*call)(const Block&));

}  // namespace longhaul::softdev
