#include "tests/accelerator/pinned.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "tests/accelerator/counters.h"
#include "tests/accelerator/memory.h"

namespace longhaul::softdev {
namespace {

struct PinnedCopy {
  size_t stream;
  uint64_t number;
  std::byte* pinned;
  bool to_host;
  std::vector<std::byte> bytes;  ///< the bytes that will arrive, or that were read
  std::string label;

  bool overlaps(const std::byte* at, size_t count) const {
    return at < pinned + bytes.size() && pinned < at + count;
  }
};

std::vector<PinnedCopy>& copies() {
  static auto* const made = new std::vector<PinnedCopy>;
  return *made;
}

/// Carries out the copy: its bytes arrive, or the bytes that it read are checked for
/// changes.
void finish(const PinnedCopy& copy, bool may_throw) {
  if (copy.to_host) {
    std::memcpy(copy.pinned, copy.bytes.data(), copy.bytes.size());
  } else if (std::memcmp(copy.pinned, copy.bytes.data(), copy.bytes.size()) != 0) {
    ++counters().races;
    report(fmt::format("RACE: the host wrote pinned memory while a copy to the device "
                       "still reads it (operation {} of {}, {} bytes{}), without having "
                       "waited for it",
                       copy.number, stream_at(copy.stream).name(), copy.bytes.size(),
                       copy.label.empty() ? "" : ", \"" + copy.label + "\""),
           may_throw);
  }
}

/// Finishes and removes the copies for which `is_over` returns true.
template <typename IsOver>
void finish_some(const IsOver& is_over, bool may_throw) {
  std::vector<PinnedCopy> over;
  std::erase_if(copies(), [&](PinnedCopy& copy) {
    if (!is_over(copy)) return false;
    over.push_back(std::move(copy));
    return true;
  });
  for (const PinnedCopy& copy : over) finish(copy, may_throw);
}

}  // namespace

void write_pinned_later(const Stream& stream, std::byte* pinned,
                        std::vector<std::byte> bytes) {
  std::memset(pinned, 0xFF, bytes.size());
  copies().push_back(
      {stream.index, stream.launched, pinned, true, std::move(bytes), thread_label()});
}

void read_pinned_later(const Stream& stream, const std::byte* pinned, size_t bytes) {
  copies().push_back({stream.index,
                      stream.launched,
                      const_cast<std::byte*>(pinned),
                      false,
                      {pinned, pinned + bytes},
                      thread_label()});
}

void use_pinned_now(const std::byte* pinned, size_t bytes) {
  finish_some([&](const PinnedCopy& copy) { return copy.overlaps(pinned, bytes); }, true);
}

void watch_pinned_memory() {
  set_after_host_saw([] {
    finish_some(
        [](const PinnedCopy& copy) {
          return host_clock().of(copy.stream) >= copy.number;
        },
        true);
  });
  set_before_pinned_free([](const Block& block) {
    finish_some(
        [&](const PinnedCopy& copy) { return copy.overlaps(block.data, block.size); },
        false);
  });
}

}  // namespace longhaul::softdev
