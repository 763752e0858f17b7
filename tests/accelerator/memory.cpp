#include "tests/accelerator/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#include "longhaul/base/error.h"
#include "tests/accelerator/board.h"
#include "tests/accelerator/counters.h"
#include "tests/accelerator/planted.h"

namespace longhaul::softdev {
namespace {

/// A file that is mapped twice: without access, for the addresses that tensors have, and
/// with access, for the kernels. Each device has a part of it.
struct Arena {
  size_t each = 0;
  size_t whole = 0;
  std::byte* closed = nullptr;
  std::byte* open = nullptr;
  std::vector<size_t> taken;

  Arena() {
    each = static_cast<size_t>(setting("SOFTDEV_MEMORY", int64_t{16} << 30));
    const auto devices = static_cast<size_t>(std::max(device_count(), 1));
    whole = each * devices;
    taken.resize(devices);
    const int file = make_shared_file("softdev-memory", whole);
    void* at = ::mmap(nullptr, whole, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) {
      throw Error(ErrorKind::Internal, "softdev", "device memory cannot be mapped");
    }
    closed = static_cast<std::byte*>(at);
    open = static_cast<std::byte*>(map_shared_file(file, whole));
  }
  bool has(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return at >= closed && at < closed + whole;
  }
};

const Arena& arena();

struct Memory {
  Arena arena;
  std::map<const std::byte*, Block*> blocks;
  /// Free blocks, by device (-1: pinned), the stream that they were taken for, and size.
  std::map<std::tuple<int, Stream*, size_t>, std::vector<Block*>> cache;
  void (*before_pinned_free)(const Block&) = nullptr;
};

Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

const Arena& arena() { return memory().arena; }

/// Rounds a size up: to 512 bytes, above 4 KiB to an eighth of a power of two. The cache
/// keeps blocks of rounded sizes.
size_t rounded(size_t bytes) {
  size_t step = 512;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

Block* make_device_block(size_t size, int device, Stream& stream) {
  Memory& all = memory();
  size_t& taken = all.arena.taken[static_cast<size_t>(device)];
  if (size > all.arena.each - taken) {
    throw Error(ErrorKind::Internal, "softdev",
                fmt::format("device {} is out of memory: {} bytes asked for, {} of {} "
                            "taken (SOFTDEV_MEMORY)",
                            device, size, taken, all.arena.each));
  }
  auto* block = new Block;
  block->data = all.arena.closed + static_cast<size_t>(device) * all.arena.each + taken;
  block->size = size;
  block->device = device;
  block->stream = &stream;
  taken += size;
  all.blocks[block->data] = block;
  ++counters().device_allocations;
  counters().device_bytes += static_cast<int64_t>(size);
  return block;
}

/// Returns a cached block of this kind whose recorded streams are done; null for none.
Block* cached(int device, Stream* stream, size_t size) {
  auto& free = memory().cache[{device, stream, size}];
  for (size_t i = free.size(); i-- > 0;) {
    Block* block = free[i];
    if (!std::ranges::all_of(block->held_by, [](const Event& held) {
          return held.stream->done(held.position);
        })) {
      continue;
    }
    for (const Event& held : block->held_by) block->uses.forget(held);
    block->held_by.clear();
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
    return block;
  }
  return nullptr;
}

/// Fills fresh memory with NaN, except where something queued may still use it.
void spoil(const Block& block) {
  for (const size_t index : block.uses.streams()) {
    Stream& stream = stream_at(index);
    if (!stream.done(stream.queue.last_put())) return;
  }
  std::memset(kernel_address(block.data), 0xFF, block.size);
}

bool same_stream_and_behind(const Access& earlier, const Access& use, const Clock& seen) {
  return earlier.number == 0 ||
         (earlier.stream == use.stream && earlier.number <= use.number) ||
         seen.of(earlier.stream) >= earlier.number;
}

/// Returns a block in use whose last use by another stream is not ordered with this
/// stream.
Block* unordered(int device, const Stream& stream, size_t size) {
  for (const auto& [data, block] : memory().blocks) {
    if (block->device != device || !block->used || block->size != size) continue;
    if (block->uses.is_behind_others(stream)) continue;
    return block;
  }
  return nullptr;
}

struct sigaction action_before;

/// Prints a report if the host has touched the device's memory, and lets the process end.
void on_stray(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  if (arena().has(at)) {
    const auto offset = static_cast<size_t>(at - arena().closed);
    std::array<char, 160> text{};
    const auto end = fmt::format_to_n(
        text.data(), text.size(),
        "softdev: STRAY: the host touches memory of device {}, byte {} of it\n",
        offset / arena().each, offset % arena().each);
    static_cast<void>(!::write(STDERR_FILENO, text.data(), end.size));
  }
  ::sigaction(signal, &action_before, nullptr);
}

}  // namespace

void watch_strays() {
  arena();
  struct sigaction action{};
  action.sa_sigaction = on_stray;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &action_before);
}

Block* take_device(size_t bytes, int device) {
  const std::lock_guard lock(state_mutex());
  const size_t size = rounded(std::max<size_t>(bytes, 1));
  Stream& stream = current_stream(device);
  Block* block =
      may_be_planted("early_reuse") ? unordered(device, stream, size) : nullptr;
  if (block == nullptr || !planted("early_reuse")) block = cached(device, &stream, size);
  if (block == nullptr) block = make_device_block(size, device, stream);
  block->used = true;
  ++block->life;
  spoil(*block);
  block->asked = bytes;
  const int64_t used = counters().used_bytes += static_cast<int64_t>(size);
  counters().peak_used_bytes = std::max(counters().peak_used_bytes.load(), used);
  const int64_t asked = counters().asked_bytes += static_cast<int64_t>(bytes);
  counters().peak_asked_bytes = std::max(counters().peak_asked_bytes.load(), asked);
  return block;
}

std::pair<size_t, size_t> device_memory_free_and_total(int device) {
  const std::lock_guard lock(state_mutex());
  const Arena& all = arena();
  return {all.each - all.taken.at(static_cast<size_t>(device)), all.each};
}

Block* take_pinned(size_t bytes) {
  const std::lock_guard lock(state_mutex());
  const size_t size = rounded(std::max<size_t>(bytes, 1));
  Block* block = cached(-1, nullptr, size);
  if (block == nullptr) {
    block = new Block;
    block->data = static_cast<std::byte*>(std::aligned_alloc(512, size));
    block->size = size;
    memory().blocks[block->data] = block;
    ++counters().pinned_allocations;
  }
  block->used = true;
  ++block->life;
  return block;
}

void give_back(Block* block) noexcept {
  const std::lock_guard lock(state_mutex());
  block->used = false;
  if (block->device < 0) {
    if (memory().before_pinned_free != nullptr) memory().before_pinned_free(*block);
    // Pinned memory waits for the copies that use it.
    for (const size_t index : block->uses.streams()) {
      record(block->held_by.emplace_back(), stream_at(index));
    }
  } else {
    counters().used_bytes -= static_cast<int64_t>(block->size);
    counters().asked_bytes -= static_cast<int64_t>(block->asked);
    for (Stream* stream : block->recorded) {
      record(block->held_by.emplace_back(), *stream);
    }
    block->recorded.clear();
  }
  memory().cache[{block->device, block->stream, block->size}].push_back(block);
}

Block* block_of(const void* address) {
  const auto& blocks = memory().blocks;
  auto after = blocks.upper_bound(static_cast<const std::byte*>(address));
  if (after == blocks.begin()) return nullptr;
  Block* block = std::prev(after)->second;
  return static_cast<const std::byte*>(address) < block->data + block->size ? block
                                                                            : nullptr;
}

bool is_device_memory(const void* address) { return arena().has(address); }

std::byte* kernel_address(const void* address) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  return arena().has(at) ? arena().open + (at - arena().closed) : at;
}

void set_before_pinned_free(void (*call)(const Block&)) {
  memory().before_pinned_free = call;
}

void UseLog::cut(size_t at) {
  auto segment = std::prev(segments_.upper_bound(at));
  if (segment->first == at || at >= segment->second.end) return;
  Segment rest = segment->second;
  segment->second.end = at;
  segments_.emplace(at, std::move(rest));
}

std::optional<UseLog::Conflict> UseLog::note(size_t begin, size_t end, bool writes,
                                             const Access& use, const Clock& seen) {
  if (begin >= end) return std::nullopt;
  cut(begin);
  cut(end);
  std::optional<Conflict> found;
  const auto first = segments_.find(begin);
  auto at = first;
  for (; at != segments_.end() && at->first < end; ++at) {
    Segment& segment = at->second;
    if (!same_stream_and_behind(segment.write, use, seen)) found = {segment.write, true};
    if (!writes) {
      std::erase_if(segment.reads,
                    [&](const Access& read) { return read.stream == use.stream; });
      segment.reads.push_back(use);
      continue;
    }
    for (const Access& read : segment.reads) {
      if (!same_stream_and_behind(read, use, seen)) found = {read, false};
    }
  }
  if (writes) {
    segments_.erase(first, at);
    segments_.emplace(begin, Segment{end, use, {}});
  }
  return found;
}

void UseLog::forget(const Event& event) {
  const size_t stream = event.stream->index;
  const auto is_over = [&](const Access& use) {
    return use.stream == stream && use.number <= event.seen.of(stream);
  };
  for (auto& [begin, segment] : segments_) {
    if (is_over(segment.write)) segment.write = {};
    std::erase_if(segment.reads, is_over);
  }
}

bool UseLog::is_behind_others(const Stream& stream) const {
  const auto is_behind = [&](const Access& use) {
    return use.number == 0 || use.stream == stream.index ||
           stream.seen.of(use.stream) >= use.number ||
           host_clock().of(use.stream) >= use.number;
  };
  return std::ranges::all_of(segments_, [&](const auto& at) {
    return is_behind(at.second.write) && std::ranges::all_of(at.second.reads, is_behind);
  });
}

std::vector<size_t> UseLog::streams() const {
  std::vector<size_t> all;
  const auto add = [&](const Access& use) {
    if (use.number > 0 && std::ranges::find(all, use.stream) == all.end()) {
      all.push_back(use.stream);
    }
  };
  for (const auto& [begin, segment] : segments_) {
    add(segment.write);
    for (const Access& read : segment.reads) add(read);
  }
  return all;
}

}  // namespace longhaul::softdev
