#include "longhaul/checkpoint/write/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/run_on_threads.h"
#include "longhaul/system/signals.h"

namespace longhaul::checkpoint {
namespace {

// With fewer bytes than this a second thread costs more than it saves.
constexpr uint64_t kBytesPerThread = uint64_t{4} << 20;

// Copies bytes [begin, end) of all tensors, counted in their order, to `to`, where each
// tensor is padded.
void copy_range(const std::vector<StateTensor>& tensors, uint64_t begin, uint64_t end,
                std::byte* to) {
  uint64_t at = 0;
  for (const StateTensor& tensor : tensors) {
    const uint64_t bytes = tensor.bytes.size();
    const uint64_t from = std::max(at, begin) - at;
    const uint64_t past = std::min(at + bytes, end) - at;
    if (from < past) std::memcpy(to + from, tensor.bytes.data() + from, past - from);
    at += bytes;
    to += padded(bytes);
    if (at >= end) return;
  }
}

}  // namespace

uint64_t staging_bytes(const std::vector<StateTensor>& tensors) {
  uint64_t total = 0;
  for (const StateTensor& tensor : tensors) total += padded(tensor.bytes.size());
  return total;
}

Staging::~Staging() { await_toucher(); }

void Staging::await_toucher() {
  if (toucher_.joinable()) toucher_.join();
}

void Staging::reserve(uint64_t bytes) {
  if (bytes <= memory_.bytes().size()) return;
  await_toucher();
  memory_.reset();
  memory_ = Mapping(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!memory_) {
    throw refused(
        "checkpoint",
        fmt::format("memory for the {} bytes that a checkpoint is copied to", bytes),
        errno, "set checkpoint.async = false, or use more ranks");
  }
  ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  try {
    toucher_ = std::thread([data = memory_.get(), bytes] {
      system::leave_signals_to_main_thread();
      constexpr uint64_t kPage = 4096;
      for (uint64_t at = 0; at < bytes; at += kPage) data[at] = std::byte{0};
    });
  } catch (const std::system_error&) {
    // The system refuses a thread. The copy itself touches the pages a little later.
  }
}

std::vector<StateTensor> Staging::copy(const std::vector<StateTensor>& tensors,
                                       int threads) {
  reserve(staging_bytes(tensors));
  await_toucher();
  std::vector<StateTensor> copies;
  uint64_t total = 0;
  std::byte* to = memory_.get();
  for (const StateTensor& tensor : tensors) {
    const uint64_t bytes = tensor.bytes.size();
    copies.push_back({tensor.kind, tensor.slice, {to, bytes}});
    to += padded(bytes);
    total += bytes;
  }
  const uint64_t workers =
      std::clamp<uint64_t>(total / kBytesPerThread, 1, static_cast<uint64_t>(threads));
  try {
    system::run_on_threads(static_cast<int>(workers), [&](int number) {
      const auto w = static_cast<uint64_t>(number);
      copy_range(tensors, total * w / workers, total * (w + 1) / workers, memory_.get());
    });
  } catch (const TemporaryError&) {
    // The system refuses more threads. A checkpoint is worth the wait for a copy by one
    // thread.
    copy_range(tensors, 0, total, memory_.get());
  }
  return copies;
}

}  // namespace longhaul::checkpoint
